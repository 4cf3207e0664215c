// Products: MatMul, Gemm, Einsum, and com.microsoft's fused forms. Those of float16 and bfloat16 are accumulated in
// float32 (torch's kernels do) and rounded once.
#include <ATen/ops/addmm.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

void run_matmul(Call& call) {
  const Tensor& a = call.input(0);
  call.require(a.dim() > 0 && call.input(1).dim() > 0, "its inputs must have axes");
  call.result(narrowed(at::matmul(widened(a), widened(call.input(1))), a.scalar_type()));
}

bool is_row(const Tensor& c, const Tensor& b) { return c.dim() == 1 && c.size(0) == b.size(1); }

// alpha * A * B + beta * C
void run_gemm(Call& call) {
  Tensor a = widened(call.input(0));
  Tensor b = widened(call.input(1));
  call.require(a.dim() == 2 && b.dim() == 2, "its first two inputs must have rank 2");
  if (call.flag("transA")) a = a.t();
  if (call.flag("transB")) b = b.t();

  const double alpha = call.number("alpha", 1.0);
  const double beta = call.number("beta", 1.0);
  const c10::ScalarType type = call.input(0).scalar_type();
  if (call.has(2) && is_row(call.input(2), b) && at::isFloatingType(type)) {
    return call.result(at::addmm(call.input(2), a, b, beta, alpha));
  }

  Tensor product = at::matmul(raised(a), raised(b));
  if (alpha != 1.0) product = product.mul(alpha);
  if (call.has(2)) {
    const Tensor c = raised(widened(call.input(2)));
    product = product.add(beta == 1.0 ? c : c.mul(beta));
  }

  call.result(narrowed(product.to(a.scalar_type()), type));
}

void run_einsum(Call& call) {
  std::vector<Tensor> operands;
  for (std::size_t i = 0; i < call.input_count(); ++i) operands.push_back(call.input(i));
  std::string equation = call.text("equation", "");
  std::erase(equation, ' ');
  call.result(at::einsum(equation, operands));
}

// ---------------------------------------------------------------- com.microsoft

Tensor turned(const Tensor& x, bool is_transposed) { return is_transposed && x.dim() >= 2 ? x.transpose(-1, -2) : x; }

// transBatch moves the last axis but one to the front, which is how heads are packed.
Tensor batch_turned(const Tensor& x, bool is_transposed) {
  return is_transposed && x.dim() >= 2 ? x.movedim(-2, 0) : x;
}

void run_fused_matmul(Call& call) {
  const Tensor a = turned(batch_turned(call.input(0), call.flag("transBatchA")), call.flag("transA"));
  const Tensor b = turned(batch_turned(call.input(1), call.flag("transBatchB")), call.flag("transB"));
  const double alpha = call.number("alpha", 1.0);
  if (alpha == 1.0) return call.result(at::matmul(a, b));
  call.result(at::matmul(raised(a), raised(b)).mul(alpha).to(a.scalar_type()));
}

// Weights of `bits` bits in blocks along K, each block with a scale and a zero point: B [N, blocks, bytes].
Tensor dequantized_blocks(const Call& call, std::int64_t n, std::int64_t k) {
  const std::int64_t bits = call.integer("bits", 4);
  const std::int64_t block = call.integer("block_size");
  call.require(bits == 2 || bits == 4 || bits == 8, "bits must be 2, 4 or 8");
  call.require(block > 0 && block < (1 << 30), "block_size must be positive");
  call.require(n > 0 && k > 0 && k < (std::int64_t{1} << 40), "N and K must be positive");

  const std::int64_t blocks = (k + block - 1) / block;
  const std::int64_t per_byte = 8 / bits;
  const auto unpacked = [&](const Tensor& bytes, std::int64_t count) {
    std::vector<Tensor> parts;
    for (std::int64_t i = 0; i < per_byte; ++i) {
      parts.push_back(bytes.bitwise_right_shift(i * bits).bitwise_and((std::int64_t{1} << bits) - 1));
    }
    return at::stack(parts, -1).reshape({n, -1}).narrow(1, 0, count);
  };

  const Tensor levels =
      unpacked(call.input(1).reshape({n, -1}), blocks * block).reshape({n, blocks, block}).to(at::kFloat);
  const Tensor scales = call.input(2).reshape({n, blocks, 1}).to(at::kFloat);
  if (!call.has(3)) return levels.sub(1 << (bits - 1)).mul(scales).reshape({n, -1}).narrow(1, 0, k);

  const bool is_packed = call.input(3).scalar_type() == at::kByte;
  const Tensor zeros = is_packed ? unpacked(call.input(3).reshape({n, -1}), blocks).to(at::kFloat)
                                 : call.input(3).to(at::kFloat).reshape({n, blocks});
  return levels.sub(zeros.unsqueeze(-1)).mul(scales).reshape({n, -1}).narrow(1, 0, k);
}

void run_matmul_nbits(Call& call) {
  const Tensor& a = call.input(0);
  const std::int64_t n = call.integer("N");
  const std::int64_t k = call.integer("K");
  call.require(!call.has(4), "a group index cannot be run");
  Tensor product = at::matmul(a.to(at::kFloat), dequantized_blocks(call, n, k).t());
  if (call.has(5)) product = product.add(call.input(5).to(at::kFloat));
  call.result(product.to(a.scalar_type()));
}

}  // namespace

void populate_matmul(OperatorTable& table) {
  table.add("MatMul", run_matmul);
  table.add("Gemm", run_gemm);
  table.add("Einsum", run_einsum);
  table.add("com.microsoft::FusedMatMul", run_fused_matmul);
  table.add("com.microsoft::MatMulNBits", run_matmul_nbits);
}

}  // namespace exportguard::evaluator
