#include "exportguard/ir/joined.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "exportguard/common/errors.h"

namespace exportguard::ir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string bytes_of(const Tensor& tensor, std::size_t piece) {
  std::string bytes;
  tensor.visit_bytes(
      [&](const void* data, std::size_t count) {
        EXPECT_LE(count, piece);
        bytes.append(static_cast<const char*>(data), count);
      },
      piece);
  return bytes;
}

std::string dense_bytes(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

/// Three parts that differ along the axis; the second one lies in memory in another order.
std::vector<at::Tensor> parts_along(std::int64_t axis) {
  std::vector<at::Tensor> parts;
  for (const std::int64_t size : {3, 5, 1}) {
    std::vector<std::int64_t> shape = {4, 2, 3};
    shape[static_cast<std::size_t>(axis)] = size;
    parts.push_back(at::rand(shape));
  }
  parts[1] = parts[1].permute({2, 0, 1}).contiguous().permute({1, 2, 0});
  return parts;
}

TEST(Joined, HoldsThePartsOneBehindTheOtherInPiecesOfAnySize) {
  for (std::int64_t axis = 0; axis < 3; ++axis) {
    const std::vector<at::Tensor> parts = parts_along(axis);
    const Tensor tensor = joined({{Tensor(parts[0]), Tensor(parts[1]), Tensor(parts[2])}}, axis);
    const at::Tensor expected = at::cat(parts, axis);
    EXPECT_EQ(tensor.shape(), expected.sizes().vec());
    EXPECT_EQ(tensor.nbytes(), expected.nbytes());
    for (const std::size_t piece : {4, 12, 60, 1 << 20}) {
      EXPECT_EQ(bytes_of(tensor, piece), dense_bytes(expected)) << "axis " << axis << " by " << piece;
    }
    EXPECT_TRUE(at::equal(tensor.aten(), expected));
    EXPECT_EQ(tensor, Tensor(expected));
  }
}

TEST(Joined, ReadsThePartsWhenItsBytesAreAskedFor) {
  const at::Tensor part = at::zeros({2});
  const Tensor tensor = joined({{Tensor(part), Tensor(part)}}, 0);
  part.fill_(1);
  EXPECT_EQ(bytes_of(tensor, 64), dense_bytes(at::ones({4})));
}

TEST(Joined, HasTheIdentityOfItsParts) {
  const Tensor a(at::ones({2, 3}));
  const Tensor b(at::ones({2, 3}));
  EXPECT_EQ(joined({{a, b}}, 0).identity(), joined({{a, b}}, 0).identity());
  EXPECT_NE(joined({{a, b}}, 0).identity(), joined({{a, b}}, 1).identity());
  EXPECT_NE(joined({{a, b}}, 0).identity(), joined({{b, a}}, 0).identity());
}

TEST(Joined, IsMadeOnceForAllThreads) {
  const Tensor tensor = joined({{Tensor(at::rand({64, 8})), Tensor(at::rand({64, 8}))}}, 1);
  std::vector<const void*> seen(4);
  {
    std::vector<std::jthread> threads;
    for (const void*& data : seen) threads.emplace_back([&] { data = tensor.aten().const_data_ptr(); });
  }
  EXPECT_TRUE(std::ranges::all_of(seen, [&](const void* data) { return data == seen[0]; }));
}

TEST(Joined, ReadsIntegersAndEmptyParts) {
  EXPECT_THAT(joined({{Tensor::ints({1, 2}), Tensor::ints({}), Tensor::ints({3})}}, 0).to_ints(), ElementsAre(1, 2, 3));
}

TEST(Joined, PartsThatDoNotFitAreRefused) {
  const Tensor a(at::ones({2, 3}));
  EXPECT_THAT([] { (void)joined({}, 0); }, ThrowsMessage<InvalidArgument>(HasSubstr("needs a part")));
  EXPECT_THAT([&] { (void)joined({{a, a}}, 2); }, ThrowsMessage<InvalidArgument>(HasSubstr("axis 2 is none")));
  EXPECT_THAT([&] { (void)joined({{a, a}}, -1); }, ThrowsMessage<InvalidArgument>(HasSubstr("axis -1 is none")));
  EXPECT_THAT([&] { (void)joined({{a, Tensor(at::ones({3, 3}))}}, 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("f32[3,3] cannot stand behind f32[2,3] along axis 1")));
  EXPECT_THAT([&] { (void)joined({{a, Tensor(at::ones({2, 3}, at::kLong))}}, 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("i64[2,3] cannot stand behind")));
  EXPECT_THAT([&] { (void)joined({{Tensor::strings({"a"})}}, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("parts of string cannot be joined")));
}

}  // namespace
}  // namespace exportguard::ir
