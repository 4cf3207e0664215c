#include "importer/aliases.h"

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

void Aliases::reshape_self(ir::Node& node, Tensor& tensor, const ir::Value& value) {
  add_views(node, 0, tensor);
  bind(value, of(node.output()));
}

ir::Value& Aliases::current(Tensor& tensor, const TorchCall& call) {
  const std::size_t version = tensor.owner->writes;
  if (tensor.view == nullptr || tensor.version == version) return *tensor.current;
  View& view = *tensor.view;
  if (view.version != version) {
    ir::Value& viewed = current(*view.viewed, call);
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
    const ScatterBack back{*part->view->node, part->output, current(whole, call), *updates.back().second};
    updates.emplace_back(&whole, &scatter_back(back, call));
  }
  ++tensor.owner->writes;
  for (const auto& [updated, result] : updates) set_current(*updated, *result);
}

}  // namespace exportguard::importer
