#include "validation/lockstep.h"

#include "exportguard/evaluator/evaluator.h"
#include "validation/judgement.h"

namespace exportguard::validation {

ReferenceRun::ReferenceRun(const ir::Model& reference, std::span<const evaluator::Value> inputs,
                           const std::string& device, const Values& wanted, std::size_t window)
    : wanted_(wanted), window_(window) {
  const auto run = [this, &reference, device, inputs] {
    try {
      const evaluator::Program program(
          reference,
          {.device = device,
           .observer = [this](const ir::Value& value, const evaluator::Value& content) { put(value, content); },
           .substitute = {}});
      program.run(inputs);
    } catch (const Stopped&) {
    } catch (...) {
      failure_ = std::current_exception();
    }
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  };
  thread_ = std::thread(run);
}

ReferenceRun::~ReferenceRun() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void ReferenceRun::put(const ir::Value& value, const evaluator::Value& content) {
  std::unique_lock lock(mutex_);
  if (is_stopped_) throw Stopped();
  if (!wanted_.contains(&value)) return;

  bytes_ += bytes_of(content);
  made_.insert_or_assign(&value, content);
  changed_.notify_all();
  changed_.wait(lock, [this] { return is_stopped_ || is_awaited_ || bytes_ <= window_; });
  if (is_stopped_) throw Stopped();
}

std::optional<evaluator::Value> ReferenceRun::take(const ir::Value& value) {
  std::unique_lock lock(mutex_);
  is_awaited_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return is_over_ || made_.contains(&value); });
  is_awaited_ = false;

  const auto found = made_.find(&value);
  if (found == made_.end()) {
    if (failure_) std::rethrow_exception(failure_);
    return std::nullopt;
  }
  evaluator::Value content = std::move(found->second);
  made_.erase(found);
  bytes_ -= bytes_of(content);
  changed_.notify_all();
  return content;
}

}  // namespace exportguard::validation
