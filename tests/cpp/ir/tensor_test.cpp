#include "exportguard/ir/tensor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "exportguard/common/errors.h"

namespace exportguard::ir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Visited {
  std::string bytes;
  std::size_t largest = 0;
  std::vector<const void*> pointers;
};

Visited visit(const Tensor& tensor, std::size_t piece) {
  Visited result;
  auto collect = [&](const void* data, std::size_t bytes) {
    result.bytes.append(static_cast<const char*>(data), bytes);
    result.largest = std::max(result.largest, bytes);
    result.pointers.push_back(data);
  };
  tensor.visit_bytes(collect, piece);
  return result;
}

std::string dense_bytes(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

TEST(Tensor, ContiguousStorageIsPassedWithoutACopy) {
  const at::Tensor weight = at::arange(100, at::kFloat);
  const Visited visited = visit(Tensor(weight), 128);
  EXPECT_EQ(visited.bytes, dense_bytes(weight));
  EXPECT_EQ(visited.pointers.front(), weight.const_data_ptr());
  EXPECT_LE(visited.largest, 128U);
}

struct View {
  std::string name;
  at::Tensor tensor;
};

std::vector<View> views() {
  const at::Tensor base = at::arange(2 * 3 * 5 * 7, at::kFloat).reshape({2, 3, 5, 7});
  const at::Tensor complex = at::complex(at::arange(6, at::kFloat), at::ones({6}));
  return {{"Transposed", base.permute({3, 1, 0, 2})},
          {"Strided", base.slice(3, 0, 7, 2)},
          {"Expanded", at::arange(5, at::kFloat).reshape({5, 1}).expand({5, 9})},
          {"ChannelsLast", base.contiguous(at::MemoryFormat::ChannelsLast)},
          {"Conjugated", complex.conj()},
          {"Negated", at::imag(complex.conj())},
          {"Scalar", base.select(0, 1).select(0, 2).select(0, 3).select(0, 4)},
          {"Empty", base.slice(1, 0, 0)}};
}

TEST(Tensor, EveryViewIsVisitedInTheOrderOfItsElementsInSmallPieces) {
  for (const View& view : views()) {
    for (const std::size_t piece : {16, 100, 1 << 20}) {
      const Visited visited = visit(Tensor(view.tensor), piece);
      EXPECT_EQ(visited.bytes, dense_bytes(view.tensor.resolve_conj().resolve_neg())) << view.name << " by " << piece;
      EXPECT_LE(visited.largest, piece) << view.name;
    }
  }
}

TEST(Tensor, TransposedMatricesOfEveryElementSizeAreVisitedInOrder) {
  for (const c10::ScalarType type : {at::kByte, at::kHalf, at::kFloat, at::kDouble, at::kComplexDouble}) {
    const at::Tensor matrix = at::randint(0, 100, {71, 90}).to(type).t();
    for (const at::Tensor& view : {matrix, matrix.narrow(0, 5, 33), matrix.narrow(1, 2, 40), matrix.select(0, 3)}) {
      for (const std::size_t piece : {std::size_t{64}, std::size_t{2000}, std::size_t{1} << 20}) {
        EXPECT_EQ(visit(Tensor(view), piece).bytes, dense_bytes(view)) << c10::toString(type) << " by " << piece;
      }
    }
  }
}

TEST(Tensor, FourBitElementsArePackedAcrossPieces) {
  const std::int64_t shape[] = {3, 3};
  const Tensor tensor = Tensor::filled(-2, DType::kInt4, shape);
  EXPECT_EQ(tensor.nbytes(), 5U);
  EXPECT_EQ(visit(tensor, 1).bytes, "\xEE\xEE\xEE\xEE\x0E");
  EXPECT_EQ(visit(tensor, 100).bytes, "\xEE\xEE\xEE\xEE\x0E");
}

TEST(Tensor, AnInt4TensorOfTorchIsReadElementByElement) {
  const at::Tensor values = at::arange(-3, 3, at::kChar).view(at::ScalarType::Int4);
  const Tensor tensor(values);
  EXPECT_EQ(tensor.dtype(), DType::kInt4);
  EXPECT_THAT(tensor.to_ints(), ElementsAre(-3, -2, -1, 0, 1, 2));
  EXPECT_EQ(visit(tensor, 4).bytes, std::string("\xED\x0F\x21", 3));
}

TEST(Tensor, ValuesReadBack) {
  EXPECT_THAT(Tensor::ints({3, -1}).to_ints(), ElementsAre(3, -1));
  EXPECT_THAT(Tensor::scalar(std::int64_t{1}, DType::kBool).to_ints(), ElementsAre(1));
  EXPECT_THAT(Tensor::scalar(0.5, DType::kBFloat16).to_doubles(), ElementsAre(0.5));
  EXPECT_THAT(Tensor::scalar(std::int64_t{7}, DType::kFloat16).to_doubles(), ElementsAre(7));
  EXPECT_EQ(Tensor::scalar(-std::numeric_limits<double>::infinity(), DType::kFloat16).to_doubles().front(),
            -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(Tensor::scalar(std::nan(""), DType::kFloat32).to_doubles().front()));
  EXPECT_THAT(Tensor::ints({}).shape(), ElementsAre(0));
  EXPECT_TRUE(Tensor::scalar(1.0, DType::kFloat32).shape().empty());
}

TEST(Tensor, EveryNumericDtypeCanBeFilled) {
  for (int i = 1; i < 23; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype == DType::kString) continue;
    const std::int64_t shape[] = {2};
    const Tensor tensor = Tensor::filled(1, dtype, shape);
    EXPECT_EQ(tensor.dtype(), dtype);
    EXPECT_EQ(visit(tensor, 64).bytes.size(), tensor.nbytes()) << name(dtype);
  }
}

TEST(Tensor, AWrongKindOfElementIsAnError) {
  EXPECT_THAT([] { (void)Tensor::scalar(1.0, DType::kFloat32).to_ints(); },
              ThrowsMessage<GraphError>(HasSubstr("expected a tensor of integers or bools, got dtype f32")));
  EXPECT_THAT([] { (void)Tensor::strings({"a"}).to_doubles(); },
              ThrowsMessage<GraphError>(HasSubstr("expected a tensor of real numbers, got dtype string")));
  EXPECT_THAT([] { (void)Tensor::ints({1}).strings(); },
              ThrowsMessage<GraphError>(HasSubstr("expected a tensor of strings, got dtype i64")));
  EXPECT_THROW((void)Tensor::strings({"a"}).aten(), GraphError);
}

TEST(Tensor, TensorsWithoutElementsInMemoryAreRefused) {
  EXPECT_THAT([] { Tensor(at::empty({2}, at::kMeta)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no elements (meta or fake tensor)")));
  EXPECT_THAT([] { Tensor(at::eye(3).to_sparse()); }, ThrowsMessage<InvalidArgument>(HasSubstr("call to_dense()")));
  EXPECT_THAT([] { Tensor{at::Tensor()}; }, ThrowsMessage<InvalidArgument>(HasSubstr("undefined")));
}

// Torch counts strides with a size of 0 as one of 1.
TEST(Tensor, SizesWhoseStridesDoNotFitAreRefusedEvenWithoutElements) {
  const std::vector<std::int64_t> sizes{0, std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_THAT([&] { Tensor::from_memory(DType::kFloat32, sizes, {}, nullptr); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a tensor cannot have the sizes [0, ")));
}

TEST(Tensor, TheSameMemorySeenAlikeHasOneIdentity) {
  const at::Tensor base = at::arange(12, at::kFloat);
  EXPECT_EQ(Tensor(base).identity(), Tensor(base.view({12})).identity());
  EXPECT_NE(Tensor(base).identity(), Tensor(base.view({3, 4})).identity());
  EXPECT_NE(Tensor(base).identity(), Tensor(base.slice(0, 1)).identity());
  EXPECT_NE(Tensor(base).identity(), Tensor(base.clone()).identity());
  EXPECT_NE(Tensor(base.view({3, 4})).identity(), Tensor(base.view({4, 3}).t()).identity());
}

TEST(Tensor, EqualityIsThatOfBits) {
  const at::Tensor nan = at::full({2}, std::nan(""), at::kFloat);
  EXPECT_EQ(Tensor(nan), Tensor(nan.clone()));
  EXPECT_FALSE(Tensor(at::zeros({1})) == Tensor(-at::zeros({1})));
  EXPECT_FALSE(Tensor::ints({1}) == Tensor::ints({2}));
  EXPECT_FALSE(Tensor::scalar(1.0, DType::kFloat32) == Tensor::scalar(1.0, DType::kFloat64));
  EXPECT_EQ(Tensor::strings({"a"}), Tensor::strings({"a"}));
}

}  // namespace
}  // namespace exportguard::ir
