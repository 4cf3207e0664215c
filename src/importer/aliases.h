#pragma once

#include <cstddef>
#include <deque>
#include <unordered_map>
#include <vector>

#include "exportguard/ir/graph.h"
#include "importer/torch_call.h"
#include "operators/facts.h"

namespace exportguard::importer {

/// Which values of one graph show the same memory, and which value holds each one's elements at the point that the pass
/// has come to. A write makes a new value of the tensor that owns the memory; the views on it are computed from that
/// value again when they are read next.
class Aliases {
 public:
  struct View;
  struct Tensor;

  /// Part of a tensor's memory is that of `other` or a copy of it, as the sizes at run time decide.
  struct Doubt {
    Tensor* part;
    Tensor* other;
    const ir::Node* write = nullptr;  ///< into `other` since then, which reached `part` or not
  };

  /// One tensor object of the user's program.
  struct Tensor {
    Tensor* owner;            ///< of the memory; itself unless a view
    View* view = nullptr;     ///< how it was taken of another tensor; null for an owner
    std::size_t output = 0;   ///< of the view's node
    ir::Value* current;       ///< the value with its elements as of `version`
    std::size_t version = 0;  ///< writes to the memory that `current` has seen
    std::size_t writes = 0;   ///< of an owner: writes to the memory so far
    bool is_contiguous = true;
    std::vector<Doubt> doubts = {};  ///< of an owner
  };

  /// One node that takes views.
  struct View {
    ir::Node* node;        ///< as it stands in the graph, or made again with the same arguments
    std::size_t argument;  ///< the argument of `node` whose memory is shared
    Tensor* viewed;
    std::size_t version;  ///< of the memory when `node` ran
    bool repeats = true;  ///< false if `node` takes a list of tensors, and cannot be made again for one of them
  };

  /// The tensor that `value` shows; one that was not seen before owns its memory.
  Tensor& of(ir::Value& value);
  Tensor* find(const ir::Value& value) const;  ///< null if it was not seen before

  /// From now on `value` shows `tensor`.
  void bind(const ir::Value& value, Tensor& tensor) { tensors_[&value] = &tensor; }

  /// The outputs of `node` are views of its argument `argument`, which shows `viewed`.
  void add_views(ir::Node& node, std::size_t argument, Tensor& viewed);

  /// Output i of `node` is a view of tensor i of the list that its argument `argument` is.
  void add_views_of_list(ir::Node& node, std::size_t argument);

  /// The sizes at run time decide whether both are the same memory.
  void doubt(Tensor& a, Tensor& b);

  /// From now on `value`, which showed `tensor`, shows what `node` made of it: a view of it, as its first argument.
  void reshape_self(ir::Node& node, Tensor& tensor, const ir::Value& value);

  /// The value that has the elements of `tensor` now. New nodes go in front of `call.before()`.
  /// @throws ImportError if the sizes at run time decide what they are.
  ir::Value& current(Tensor& tensor, const TorchCall& call);

  /// The same for who takes a view of it: only reading the view will tell whether its elements are in doubt.
  ir::Value& viewed_now(Tensor& tensor, const TorchCall& call);

  /// `value` holds the new elements of `tensor`; what it is a view of is updated.
  /// @throws ImportError if a view on the way cannot be written through.
  void write(Tensor& tensor, ir::Value& value, const TorchCall& call);

 private:
  Tensor& add(Tensor tensor, const ir::Value& value);
  void set_current(Tensor& tensor, ir::Value& value);

  std::deque<Tensor> storage_;
  std::deque<View> views_;
  std::unordered_map<const ir::Value*, Tensor*> tensors_;
};

}  // namespace exportguard::importer
