#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::validation {

/// A value of a model beside the value of the reference that it should be.
struct AlignedPair {
  const ir::Value* expected;
  const ir::Value* got;
  bool is_sure;    ///< by how both are made, not by their names alone
  bool is_chance;  ///< random or unset: the reference's is taken, and nothing compared
};

/// The outputs, without those that are None: a file has no place for these.
std::vector<const ir::Value*> outputs_of(const ir::Graph& graph);

/// Values of the two main graphs that should be the same, in the order in which the model makes them. Outputs of the
/// graphs are aligned by position.
///
/// A program of torch operators and its model agree in the names of values: lowering and optimizer hand the name of
/// what is replaced on to what replaces it. Two ONNX models are aligned by their names where nine of ten are shared,
/// and where they are not by what nodes read: the same operator of values that are aligned gives values that are.
std::vector<AlignedPair> align(const ir::Graph& reference, const ir::Graph& model);

/// The same of two bodies, of which values of `around` are known. Inputs and outputs stand for each other by position
/// if the two are bodies of one operator.
std::vector<AlignedPair> align_bodies(const ir::Graph& reference, const ir::Graph& model, bool is_one_operator,
                                      const std::vector<AlignedPair>& around);

}  // namespace exportguard::validation
