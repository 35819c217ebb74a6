// Speed of bytecode beside the same arithmetic written by hand with Highway, and beside memcpy
// moving as many bytes (read + written), alternating in one run; in the second-level cache and out
// of all caches. Checks first that maps and hand-written code give the same bits. A codec in
// bytecode, of the block's range in 8 bits, is measured beside minmax, which does about the same.
#include "bagua/kernels/CodecProgram.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <time.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "MapBench.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#ifndef BAGUA_MAP_BENCH_TYPES
#define BAGUA_MAP_BENCH_TYPES
/// Arrays of one launch: inputs first, then what is written; in place where they are the same.
struct Arrays {
  std::vector<float *> in, out;
  size_t count = 0; ///< A multiple of 64.
};
#endif

HWY_BEFORE_NAMESPACE();
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 0.9, 0.999, 1e-3 and 1e-8 as the programs below have them, rounded to f32 there and here.
constexpr float kBeta1 = static_cast<float>(0.9), kBeta2 = static_cast<float>(0.999),
                kRate = static_cast<float>(1e-3), kEpsilon = static_cast<float>(1e-8);

template <class D, class V> HWY_INLINE V canonical(D d, V v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, HUGE_VALF * 0.0f), v);
}

HWY_ATTR void adam(const Arrays &arrays) {
  const hn::ScalableTag<float> d;
  const auto beta1 = hn::Set(d, kBeta1), rest1 = hn::Set(d, 1.0f - kBeta1);
  const auto beta2 = hn::Set(d, kBeta2), rest2 = hn::Set(d, 1.0f - kBeta2);
  const auto rate = hn::Set(d, kRate), epsilon = hn::Set(d, kEpsilon);
  for (size_t i = 0; i < arrays.count; i += hn::Lanes(d)) {
    const auto g = hn::LoadU(d, arrays.in[3] + i);
    const auto m = hn::Add(hn::Mul(beta1, hn::LoadU(d, arrays.in[0] + i)), hn::Mul(rest1, g));
    const auto v =
        hn::Add(hn::Mul(beta2, hn::LoadU(d, arrays.in[1] + i)), hn::Mul(rest2, hn::Mul(g, g)));
    const auto step = hn::Div(hn::Mul(rate, m), hn::Add(hn::Sqrt(v), epsilon));
    const auto w = hn::Sub(hn::LoadU(d, arrays.in[2] + i), step);
    hn::StoreU(canonical(d, m), d, arrays.out[0] + i);
    hn::StoreU(canonical(d, v), d, arrays.out[1] + i);
    hn::StoreU(canonical(d, w), d, arrays.out[2] + i);
  }
}

HWY_ATTR void momentum(const Arrays &arrays) {
  const hn::ScalableTag<float> d;
  const auto beta = hn::Set(d, kBeta1), rest = hn::Set(d, 1.0f - kBeta1);
  for (size_t i = 0; i < arrays.count; i += hn::Lanes(d)) {
    const auto m = hn::Mul(beta, hn::LoadU(d, arrays.in[0] + i));
    const auto g = hn::Mul(rest, hn::LoadU(d, arrays.in[1] + i));
    hn::StoreU(canonical(d, hn::Add(m, g)), d, arrays.out[0] + i);
  }
}

HWY_ATTR void axpy(const Arrays &arrays) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, kRate);
  for (size_t i = 0; i < arrays.count; i += hn::Lanes(d)) {
    const auto y = hn::LoadU(d, arrays.in[1] + i);
    const auto ax = hn::Mul(a, hn::LoadU(d, arrays.in[0] + i));
    hn::StoreU(canonical(d, hn::Add(ax, y)), d, arrays.out[0] + i);
  }
}

} // namespace HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace {

HWY_EXPORT(adam);
HWY_EXPORT(momentum);
HWY_EXPORT(axpy);

using namespace bagua::kernels;

MapProgram adamProgram() {
  MapProgram p;
  p.inputs = 4, p.scalars = 3, p.broadcast.assign(4, 0), p.constants = {1.0, 1e-8};
  for (uint16_t k = 0; k < 4; ++k) // m v w g: 0 1 2 3
    p.code.push_back({MapOp::Input, k, 0, 0});
  for (uint16_t k = 0; k < 3; ++k) // beta1 beta2 rate: 4 5 6
    p.code.push_back({MapOp::Scalar, k, 0, 0});
  for (uint16_t k = 0; k < 2; ++k) // 1 epsilon: 7 8
    p.code.push_back({MapOp::Constant, k, 0, 0});
  const MapInstruction body[] = {
      {MapOp::Sub, 7, 4, 0},   {MapOp::Mul, 4, 0, 0},   {MapOp::Mul, 9, 3, 0},
      {MapOp::Add, 10, 11, 0}, // 12: m
      {MapOp::Sub, 7, 5, 0},   {MapOp::Mul, 5, 1, 0},   {MapOp::Mul, 3, 3, 0},
      {MapOp::Mul, 13, 15, 0}, {MapOp::Add, 14, 16, 0}, // 17: v
      {MapOp::Mul, 6, 12, 0},  {MapOp::Sqrt, 17, 0, 0}, {MapOp::Add, 19, 8, 0},
      {MapOp::Div, 18, 20, 0}, {MapOp::Sub, 2, 21, 0}}; // 22: w
  p.code.insert(p.code.end(), std::begin(body), std::end(body));
  p.outputs = {12, 17, 22};
  return p;
}

MapProgram momentumProgram() {
  MapProgram p;
  p.inputs = 2, p.scalars = 1, p.broadcast.assign(2, 0), p.constants = {1.0};
  p.code = {{MapOp::Input, 0, 0, 0},    {MapOp::Input, 1, 0, 0}, {MapOp::Scalar, 0, 0, 0},
            {MapOp::Constant, 0, 0, 0}, {MapOp::Sub, 3, 2, 0},   {MapOp::Mul, 2, 0, 0},
            {MapOp::Mul, 4, 1, 0},      {MapOp::Add, 5, 6, 0}};
  p.outputs = {7};
  return p;
}

MapProgram axpyProgram() {
  MapProgram p;
  p.inputs = 2, p.scalars = 1, p.broadcast.assign(2, 0);
  p.code = {{MapOp::Input, 0, 0, 0},
            {MapOp::Input, 1, 0, 0},
            {MapOp::Scalar, 0, 0, 0},
            {MapOp::Mul, 2, 0, 0},
            {MapOp::Add, 3, 1, 0}};
  p.outputs = {4};
  return p;
}

MapProgram mixProgram() {
  MapProgram p;
  p.inputs = 3, p.scalars = 2, p.broadcast.assign(3, 0);
  p.code = {{MapOp::Input, 0, 0, 0},  {MapOp::Input, 1, 0, 0},  {MapOp::Input, 2, 0, 0},
            {MapOp::Scalar, 0, 0, 0}, {MapOp::Scalar, 1, 0, 0}, {MapOp::Sub, 1, 0, 0},
            {MapOp::Mul, 3, 5, 0},    {MapOp::Sub, 2, 0, 0},    {MapOp::Mul, 4, 7, 0},
            {MapOp::Add, 6, 8, 0},    {MapOp::Add, 0, 9, 0}};
  p.outputs = {10};
  return p;
}

Kernel must(FindError code, const Kernel &kernel, const std::string &error) {
  if (code != FindError::None) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(1);
  }
  return kernel;
}

struct Case {
  const char *name;
  MapProgram program;
  std::vector<double> scalars;
  std::vector<size_t> inPlace; ///< Input that each output is; SIZE_MAX: none.
  std::function<void(const Arrays &)> byHand;
};

void launch(const Kernel &kernel, const Arrays &arrays, const std::vector<double> &scalars) {
  std::span<const std::byte> in[kMapInputsMax];
  std::span<std::byte> out[kMapOutputsMax];
  for (size_t k = 0; k < arrays.in.size(); ++k)
    in[k] = std::as_bytes(std::span(arrays.in[k], arrays.count));
  for (size_t k = 0; k < arrays.out.size(); ++k)
    out[k] = std::as_writable_bytes(std::span(arrays.out[k], arrays.count));
  const Args args{{in, arrays.in.size()}, {out, arrays.out.size()}, scalars, arrays.count};
  kernel.run(kernel, args, 0, arrays.count);
}

/// Time that this thread has run: neighbours that take the core away do not count.
double threadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

using Memory = std::unique_ptr<float, void (*)(void *)>;
Memory allocate(size_t count) {
  return {static_cast<float *>(std::aligned_alloc(4096, (count * 4 + 4095) / 4096 * 4096)),
          std::free};
}

bool measure(const Case &c, size_t count, size_t repeats) {
  Kernel kernel;
  std::string error;
  kernel = must(findMap(std::make_shared<const MapProgram>(c.program), DType::F32, kernel, error),
                kernel, error);
  std::vector<Memory> memory;
  Arrays arrays;
  arrays.count = count;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> pattern(4096 + 1024);
  for (float &value : pattern)
    value = std::fabs(normal(random));
  auto fill = [&] {
    for (size_t k = 0; k < arrays.in.size(); ++k)
      for (size_t i = 0; i < count; i += 4096)
        std::copy_n(pattern.data() + 16 * k, std::min<size_t>(4096, count - i), arrays.in[k] + i);
  };
  for (size_t k = 0; k < c.program.inputs; ++k) {
    memory.push_back(allocate(count));
    arrays.in.push_back(memory.back().get());
  }
  for (size_t alias : c.inPlace) {
    if (alias == SIZE_MAX) {
      memory.push_back(allocate(count));
      std::fill_n(memory.back().get(), count, 0.0f);
    }
    arrays.out.push_back(alias == SIZE_MAX ? memory.back().get() : arrays.in[alias]);
  }
  fill();
  launch(kernel, arrays, c.scalars);
  std::vector<std::vector<float>> results;
  for (float *out : arrays.out)
    results.emplace_back(out, out + count);
  fill();
  c.byHand(arrays);
  for (size_t k = 0; k < arrays.out.size(); ++k)
    if (std::memcmp(results[k].data(), arrays.out[k], count * sizeof(float)) != 0) {
      std::printf("%-10s bytecode and hand-written code differ in output %zu\n", c.name, k);
      return false;
    }
  results.clear();

  const size_t moved = (arrays.in.size() + arrays.out.size()) * count * sizeof(float);
  std::vector<char> source(moved / 2, 1), target(moved / 2, 1);
  double best[3] = {1e9, 1e9, 1e9};
  for (size_t repeat = 0; repeat < repeats; ++repeat) {
    const std::function<void()> runs[] = {
        [&] { launch(kernel, arrays, c.scalars); }, [&] { c.byHand(arrays); },
        [&] { std::memcpy(target.data(), source.data(), moved / 2); }};
    for (size_t k = 0; k < 3; ++k) {
      runs[k]();
      double start = threadSeconds();
      runs[k]();
      best[k] = std::min(best[k], threadSeconds() - start);
    }
  }
  const double gigabytes = static_cast<double>(moved) / 1e9;
  std::printf("%-18s %7.2f MiB %9.2f %9.2f %9.2f %12.2f %10.2f\n", c.name,
              static_cast<double>(count) * 4 / (1 << 20), gigabytes / best[0], gigabytes / best[1],
              gigabytes / best[2], best[1] / best[0], best[2] / best[0]);
  return true;
}

CodecProgram rangeCodec() {
  CodecProgram c;
  c.block = 2048, c.headerCount = 2, c.codeBits = 8;
  c.reductions = {BlockReduction::Min, BlockReduction::Max};
  c.stats.code = {{MapOp::Input, 0, 0, 0}};
  c.stats.inputs = 1, c.stats.broadcast = {0}, c.stats.outputs = {0, 0};
  c.headers.code = {{MapOp::Input, 0, 0, 0},
                    {MapOp::Input, 1, 0, 0},
                    {MapOp::Sub, 1, 0, 0},
                    {MapOp::Constant, 0, 0, 0},
                    {MapOp::Div, 2, 3, 0}};
  c.headers.constants = {255}, c.headers.inputs = 2, c.headers.broadcast = {0, 0};
  c.headers.outputs = {0, 4};
  c.encode.code = {{MapOp::Input, 0, 0, 0},    {MapOp::Input, 1, 0, 0}, {MapOp::Input, 2, 0, 0},
                   {MapOp::Constant, 0, 0, 0}, {MapOp::Div, 3, 2, 0},   {MapOp::Sub, 0, 1, 0},
                   {MapOp::Mul, 5, 4, 0}};
  c.encode.constants = {1}, c.encode.inputs = 3, c.encode.broadcast = {0, 1, 1};
  c.encode.outputs = {6};
  c.decode.code = {{MapOp::Input, 0, 0, 0},
                   {MapOp::Input, 1, 0, 0},
                   {MapOp::Input, 2, 0, 0},
                   {MapOp::Mul, 0, 2, 0},
                   {MapOp::Add, 3, 1, 0}};
  c.decode.inputs = 3, c.decode.broadcast = {0, 1, 1}, c.decode.outputs = {4};
  return c;
}

/// Kernels of the codec in bytecode and of minmax: encode, decode, or decode-reduce of two runs.
void measureCodec(const char *what, size_t inputs, size_t count, size_t repeats) {
  const Attribute attributes[] = {{"bits", 8}, {"block", 2048}};
  const auto program = std::make_shared<const CodecProgram>(rangeCodec());
  Kernel kernels[2], encode;
  std::string error;
  must(findCodec(std::string("codec_") + what, program, DType::F32, kernels[0], error), {}, error);
  must(find(std::string("minmax_") + what, DType::F32, attributes, kernels[1], error), {}, error);
  must(find("minmax_encode", DType::F32, attributes, encode, error), {}, error);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = i < 65536 ? normal(random) : values[i - 65536];
  // Both codecs have the same wire format.
  const std::span<const std::byte> plain = std::as_bytes(std::span(values));
  std::vector<std::byte> packed(encode.outputBytes(count));
  const std::span<std::byte> target[] = {packed};
  encode.run(encode, Args{{&plain, 1}, target, {}, count}, 0, count);
  const bool encodes = kernels[0].packedOutput;
  std::vector<std::vector<std::byte>> runs(
      inputs, encodes ? std::vector<std::byte>(plain.begin(), plain.end()) : packed);
  std::vector<std::span<const std::byte>> in(runs.begin(), runs.end());
  std::vector<std::byte> result(kernels[0].outputBytes(count));
  const std::span<std::byte> out[] = {result};
  const size_t moved = inputs * in[0].size() + result.size();
  std::vector<char> source(moved / 2, 1), copy(moved / 2, 1);
  double best[3] = {1e9, 1e9, 1e9};
  for (size_t repeat = 0; repeat < repeats; ++repeat)
    for (size_t k = 0; k < 3; ++k) {
      double seconds = 0;
      for (int run = 0; run < 2; ++run) { // The first one warms the caches.
        const double start = threadSeconds();
        if (k < 2)
          kernels[k].run(kernels[k], Args{in, out, {}, count}, 0, count);
        else
          std::memcpy(copy.data(), source.data(), moved / 2);
        seconds = threadSeconds() - start;
      }
      best[k] = std::min(best[k], seconds);
    }
  const double gigabytes = static_cast<double>(moved) / 1e9;
  std::printf("%-18s %7.2f MiB %9.2f %9.2f %9.2f %12.2f %10.2f\n", what,
              static_cast<double>(count) * 4 / (1 << 20), gigabytes / best[0], gigabytes / best[1],
              gigabytes / best[2], best[1] / best[0], best[2] / best[0]);
}

} // namespace

int main(int argc, char **argv) {
  size_t megabytes = 128; // Per fp32 array.
  if (argc == 2)
    megabytes = std::strtoull(argv[1], nullptr, 10);
  if (argc > 2 || megabytes == 0) {
    std::fprintf(stderr, "usage: %s [megabytes per fp32 array]\n", argv[0]);
    return 2;
  }
  Kernel mix;
  std::string error;
  mix = must(find("mix", DType::F32, {}, mix, error), mix, error);
  const std::vector<double> thirds = {1.0 / 3.0, 1.0 / 3.0};
  const std::vector<Case> cases = {
      {"adam",
       adamProgram(),
       {0.9, 0.999, 1e-3},
       {0, 1, 2},
       [](const Arrays &arrays) { HWY_DYNAMIC_DISPATCH(adam)(arrays); }},
      {"momentum",
       momentumProgram(),
       {0.9},
       {0},
       [](const Arrays &arrays) { HWY_DYNAMIC_DISPATCH(momentum)(arrays); }},
      {"axpy",
       axpyProgram(),
       {1e-3},
       {1},
       [](const Arrays &arrays) { HWY_DYNAMIC_DISPATCH(axpy)(arrays); }},
      {"mix2", mixProgram(), thirds, {SIZE_MAX}, [&](const Arrays &arrays) {
         launch(mix, arrays, thirds);
       }}};
  std::printf("%-18s %11s %9s %9s %9s %12s %10s\n", "map or codec", "array", "GB/s", "by hand",
              "memcpy", "of by hand", "of memcpy");
  bool good = true;
  for (const Case &c : cases) {
    good = measure(c, size_t{64} << 8, 2000) && good;
    good = measure(c, (megabytes << 20) / sizeof(float), 7) && good;
  }
  for (size_t count : {size_t{64} << 8, (megabytes << 20) / sizeof(float)}) {
    const size_t repeats = count < (size_t{1} << 20) ? 500 : 7;
    measureCodec("encode", 1, count, repeats);
    measureCodec("decode", 1, count, repeats);
    measureCodec("decode_reduce_mean", 2, count, repeats);
  }
  return good ? 0 : 1;
}
#endif
