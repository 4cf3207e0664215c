#include "importer/aliases.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "exportguard/common/errors.h"
#include "importer/views.h"

namespace exportguard::importer {
namespace {

/// The same call on another tensor.
ir::Node& repeat(const ir::Node& node, std::size_t viewed, ir::Value& tensor, const TorchCall& call) {
  std::vector<CallArgument> arguments;
  for (std::size_t i = 0; i < node.arguments().size(); ++i) {
    arguments.push_back(i == viewed ? CallArgument(tensor) : CallArgument::of(node, i));
  }
  std::vector<ir::Type> types;
  for (std::size_t i = 0; i < node.output_count(); ++i) types.push_back(node.output(i).type());
  return call.node(node.domain(), node.op(), arguments, std::move(types));
}

using Tensor = Aliases::Tensor;

/// The views from the owner of the memory to the tensor.
std::vector<const Tensor*> path_to(const Tensor& tensor) {
  std::vector<const Tensor*> path;
  for (const Tensor* part = &tensor; part->view != nullptr; part = part->view->viewed) path.push_back(part);
  return {path.rbegin(), path.rend()};
}

/// Whether two views of one memory surely show no element both: where their paths part, they take different parts.
bool are_apart(const Tensor& a, const Tensor& b) {
  const auto first = path_to(a);
  const auto second = path_to(b);
  const auto [one, other] = std::ranges::mismatch(first, second);
  if (one == first.end() || other == second.end()) return false;
  return shows_other_part({*(*one)->view->node, (*one)->output}, {*(*other)->view->node, (*other)->output});
}

void require_no_doubt(const Tensor& tensor, const TorchCall& call) {
  for (const Aliases::Doubt& doubt : tensor.owner->doubts) {
    if (doubt.write == nullptr || are_apart(tensor, *doubt.part)) continue;
    const std::string reader = call.before() ? place_of(*call.before()) : "the end of the program";
    throw ImportError(fmt::format(
        "{} reads a tensor of which the sizes decide whether {} wrote it: a reshape of a tensor that is not "
        "contiguous is a view for some sizes and a copy for others; clone the tensor before the write",
        reader, place_of(*doubt.write)));
  }
}

}  // namespace

Aliases::Tensor* Aliases::find(const ir::Value& value) const {
  const auto found = tensors_.find(&value);
  return found == tensors_.end() ? nullptr : found->second;
}

Aliases::Tensor& Aliases::add(Tensor tensor, const ir::Value& value) {
  Tensor& added = storage_.emplace_back(tensor);
  if (added.owner == nullptr) added.owner = &added;
  bind(value, added);
  return added;
}

Aliases::Tensor& Aliases::of(ir::Value& value) {
  if (Tensor* tensor = find(value)) return *tensor;
  Tensor owner{.owner = nullptr, .current = &value};
  return add(owner, value);
}

void Aliases::set_current(Tensor& tensor, ir::Value& value) {
  tensor.current = &value;
  tensor.version = tensor.owner->writes;
  bind(value, tensor);
}

void Aliases::add_views(ir::Node& node, std::size_t argument, Tensor& viewed) {
  View& view = views_.emplace_back(View{&node, argument, &viewed, viewed.owner->writes});
  const bool is_contiguous = viewed.is_contiguous && keeps_contiguity(node);
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    ir::Value& value = node.output(i);
    if (is_identity_view(node)) {
      bind(value, viewed);
      continue;
    }
    Tensor tensor{.owner = viewed.owner, .view = &view, .output = i, .current = &value, .version = view.version};
    tensor.is_contiguous = is_contiguous;
    add(tensor, value);
  }
}

void Aliases::add_views_of_list(ir::Node& node, std::size_t argument) {
  const std::vector<ir::Value*> viewed = operands(node, argument);
  for (std::size_t i = 0; i < node.output_count() && i < viewed.size(); ++i) {
    Tensor& tensor = of(*viewed[i]);
    View& view = views_.emplace_back(View{&node, argument, &tensor, tensor.owner->writes, false});
    add({.owner = tensor.owner, .view = &view, .output = i, .current = &node.output(i), .version = view.version},
        node.output(i));
  }
}

void Aliases::doubt(Tensor& a, Tensor& b) {
  a.owner->doubts.push_back({&a, &b});
  b.owner->doubts.push_back({&b, &a});
}

void Aliases::reshape_self(ir::Node& node, Tensor& tensor, const ir::Value& value) {
  add_views(node, 0, tensor);
  bind(value, of(node.output()));
}

ir::Value& Aliases::current(Tensor& tensor, const TorchCall& call) {
  require_no_doubt(tensor, call);
  return viewed_now(tensor, call);
}

ir::Value& Aliases::viewed_now(Tensor& tensor, const TorchCall& call) {
  const std::size_t version = tensor.owner->writes;
  if (tensor.view == nullptr || tensor.version == version) return *tensor.current;
  View& view = *tensor.view;
  if (view.version != version) {
    if (!view.repeats) {
      throw ImportError(
          fmt::format("cannot make {} functional: the tensor that it shows was written since; clone the result",
                      place_of(*view.node)));
    }
    ir::Value& viewed = viewed_now(*view.viewed, call);
    view.node = &repeat(*view.node, view.argument, viewed, call);
    view.version = version;
  }
  set_current(tensor, view.node->output(tensor.output));
  return *tensor.current;
}

void Aliases::write(Tensor& tensor, ir::Value& value, const TorchCall& call) {
  std::vector<std::pair<Tensor*, ir::Value*>> updates = {{&tensor, &value}};
  for (Tensor* part = &tensor; part->view != nullptr; part = part->view->viewed) {
    Tensor& whole = *part->view->viewed;
    const ScatterBack back{*part->view->node, part->output, viewed_now(whole, call), *updates.back().second};
    updates.emplace_back(&whole, &scatter_back(back, call));
  }
  ++tensor.owner->writes;
  for (const Doubt& mine : tensor.owner->doubts) {
    if (are_apart(tensor, *mine.part)) continue;
    for (Doubt& theirs : mine.other->owner->doubts) {
      if (theirs.part == mine.other && theirs.other == mine.part) theirs.write = call.before();
    }
  }
  for (const auto& [updated, result] : updates) set_current(*updated, *result);
}

}  // namespace exportguard::importer
