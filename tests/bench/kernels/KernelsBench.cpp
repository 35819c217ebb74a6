// Speed of the kernels beside memcpy moving as many bytes (read + written), alternating in one run,
// on arrays that fit no cache. Checks each result against the reference first.
#include "bagua/kernels/Kernels.h"

#include "benchmark/benchmark.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <time.h>

namespace {

using namespace bagua::kernels;

/// Pages of its own, touched, 64-byte aligned.
class Memory {
public:
  explicit Memory(size_t bytes) : bytes_(std::max<size_t>(bytes, 64)) {
    data_ = static_cast<std::byte *>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data_ == MAP_FAILED) {
      std::fprintf(stderr, "cannot map %zu bytes\n", bytes_);
      std::exit(1);
    }
    std::memset(data_, 1, bytes_);
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  std::byte *data() const { return data_; }

private:
  size_t bytes_;
  std::byte *data_;
};

struct Shape {
  const char *kernel;
  size_t inputs;
  std::vector<Attribute> attributes;
};

/// Time that this thread has run: neighbours that take the core away do not count.
double threadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double best(const std::vector<double> &times) {
  return *std::min_element(times.begin(), times.end());
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

Kernel mustFind(const Shape &shape, bool reference) {
  Kernel kernel;
  std::string error;
  if (find(shape.kernel, DType::F32, shape.attributes, kernel, error, reference) !=
      FindError::None) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(1);
  }
  return kernel;
}

/// Weights of mix; else the scalars of a random kernel.
std::vector<double> scalarsOf(const Kernel &kernel, size_t inputs) {
  if (kernel.scalarPerPeer)
    return std::vector<double>(inputs - 1, 1.0 / 3.0);
  std::vector<double> scalars = {1, 2, -1, 3, 4, 0};
  scalars.resize(kernel.scalars);
  return scalars;
}

void run(benchmark::State &state, const Shape &shape, size_t count) {
  const Kernel kernel = mustFind(shape, false), reference = mustFind(shape, true);
  const size_t inBytes = kernel.inputBytes(count), outBytes = kernel.outputBytes(count);
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<std::span<const std::byte>> inputs;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> pattern(1 << 16);
  for (float &value : pattern)
    value = normal(random);
  Memory floats(count * sizeof(float));
  for (size_t i = 0; i < count; i += pattern.size())
    std::memcpy(floats.data() + i * sizeof(float), pattern.data(),
                std::min(pattern.size(), count - i) * sizeof(float));
  for (size_t k = 0; k < shape.inputs; ++k) {
    memory.push_back(std::make_unique<Memory>(inBytes));
    if (kernel.packedInput) {
      const std::string_view name = shape.kernel;
      const std::string encoder(name.substr(0, name.rfind("_decode")));
      Kernel encode = mustFind({(encoder + "_encode").c_str(), 1, shape.attributes}, false);
      std::span<const std::byte> x[] = {{floats.data(), count * sizeof(float)}};
      std::span<std::byte> packed[] = {{memory.back()->data(), inBytes}};
      encode.run(encode, Args{x, packed, scalarsOf(encode, 1), count}, 0, count);
    } else {
      std::memcpy(memory.back()->data(), floats.data(), inBytes);
    }
    inputs.emplace_back(memory.back()->data(), inBytes);
  }
  Memory output(outBytes);
  std::span<std::byte> outputs[] = {{output.data(), outBytes}};
  const std::vector<double> scalars = scalarsOf(kernel, shape.inputs);
  const Args args{inputs, outputs, scalars, count};

  // The check: the same bytes as the reference, on the first elements.
  const size_t checked = std::min<size_t>(count, size_t{1} << 20);
  std::vector<std::byte> expected(reference.outputBytes(checked));
  std::vector<std::span<const std::byte>> head;
  for (auto input : inputs)
    head.push_back(input.first(kernel.inputBytes(checked)));
  std::span<std::byte> expectedOutput[] = {expected};
  reference.run(reference, Args{head, expectedOutput, scalars, checked}, 0, checked);
  std::span<std::byte> gotOutput[] = {{output.data(), expected.size()}};
  kernel.run(kernel, Args{head, gotOutput, scalars, checked}, 0, checked);
  if (std::memcmp(expected.data(), output.data(), expected.size()) != 0) {
    state.SkipWithError("result differs from the reference");
    return;
  }

  const size_t moved = shape.inputs * inBytes + outBytes;
  Memory copySource(moved / 2), copyTarget(moved / 2);
  std::vector<double> kernelTimes, copyTimes, ratios;
  for (auto _ : state) {
    // In between, each evicts what the other left in the caches.
    double start = threadSeconds();
    std::memcpy(copyTarget.data(), copySource.data(), moved / 2);
    benchmark::ClobberMemory();
    copyTimes.push_back(threadSeconds() - start);
    start = threadSeconds();
    kernel.run(kernel, args, 0, count);
    benchmark::ClobberMemory();
    kernelTimes.push_back(threadSeconds() - start);
    ratios.push_back(copyTimes.back() / kernelTimes.back());
    state.SetIterationTime(kernelTimes.back());
  }
  const double gigabytes = static_cast<double>(moved) / 1e9;
  state.counters["GB/s"] = gigabytes / median(kernelTimes);
  state.counters["memcpy_GB/s"] = gigabytes / median(copyTimes);
  state.counters["of_memcpy"] = median(ratios);
  state.counters["best_of_memcpy"] =
      best(copyTimes) / best(kernelTimes); // Less noise on a busy machine.
}

} // namespace

int main(int argc, char **argv) {
  benchmark::Initialize(&argc, argv);
  size_t megabytes = 512; // Per fp32 array; more than the last-level cache of any machine we know.
  if (argc == 2)
    megabytes = std::strtoull(argv[1], nullptr, 10);
  if (argc > 2 || megabytes == 0) {
    std::fprintf(stderr, "usage: %s [--benchmark_…] [megabytes per fp32 array]\n", argv[0]);
    return 2;
  }
  const size_t count = (megabytes << 20) / sizeof(float);
  std::printf(
      "fp32 arrays of %zu MiB; of_memcpy is against memcpy moving as many bytes (read + written)\n",
      megabytes);
  const std::vector<Attribute> eight = {{"bits", 8}, {"block", 2048}},
                               four = {{"bits", 4}, {"block", 512}},
                               three = {{"bits", 3}, {"block", 512}};
  using Attributes = std::vector<Attribute>;
  const Attributes sign = {{"block", 4096}}, ternary = {{"block", 2048}},
                   qsgd = {{"levels", 127}, {"norm", 0}, {"block", 2048}},
                   qsgd4 = {{"levels", 7}, {"norm", 2}, {"block", 512}},
                   topK = {{"k", 32}, {"block", 2048}},
                   randK = {{"k", 32}, {"block", 2048}, {"scaled", 1}};
  const std::vector<Shape> shapes = {{"copy", 1, {}},
                                     {"reduce_sum", 2, {}},
                                     {"reduce_mean", 2, {}},
                                     {"reduce_mean", 3, {}},
                                     {"reduce_mean", 4, {}},
                                     {"mix", 3, {}},
                                     {"dot", 2, {}},
                                     {"norm", 1, {}},
                                     {"all_finite", 1, {}},
                                     {"random_uniform", 0, {}},
                                     {"minmax_encode", 1, eight},
                                     {"minmax_decode", 1, eight},
                                     {"minmax_decode_reduce_mean", 2, eight},
                                     {"minmax_decode_reduce_mean", 4, eight},
                                     {"minmax_encode", 1, four},
                                     {"minmax_decode", 1, four},
                                     {"minmax_encode", 1, three},
                                     {"minmax_decode", 1, three},
                                     {"minmax_decode_reduce_mean", 4, four},
                                     {"identity_encode", 1, {}},
                                     {"identity_decode_reduce_mean", 4, {}},
                                     {"f16_encode", 1, {}},
                                     {"f16_decode", 1, {}},
                                     {"f16_decode_reduce_mean", 4, {}},
                                     {"bf16_encode", 1, {}},
                                     {"bf16_decode", 1, {}},
                                     {"bf16_decode_reduce_mean", 4, {}},
                                     {"sign_encode", 1, sign},
                                     {"sign_decode", 1, sign},
                                     {"sign_decode_reduce_mean", 4, sign},
                                     {"qsgd_encode", 1, qsgd},
                                     {"qsgd_decode", 1, qsgd},
                                     {"qsgd_decode_reduce_mean", 4, qsgd},
                                     {"qsgd_encode", 1, qsgd4},
                                     {"qsgd_decode", 1, qsgd4},
                                     {"ternary_encode", 1, ternary},
                                     {"ternary_decode", 1, ternary},
                                     {"topk_encode", 1, topK},
                                     {"topk_decode", 1, topK},
                                     {"topk_decode_reduce_mean", 4, topK},
                                     {"randk_encode", 1, randK},
                                     {"randk_decode", 1, randK},
                                     {"randk_decode_reduce_mean", 4, randK},
                                     {"minmax_reference_encode", 1, ternary},
                                     {"minmax_reference_decode", 1, ternary}};
  for (const Shape &shape : shapes) {
    std::string name = std::string(shape.kernel) + "/inputs:" + std::to_string(shape.inputs);
    for (const Attribute &attribute : shape.attributes)
      name += "/" + std::string(attribute.name) + ":" + std::to_string(attribute.value);
    benchmark::RegisterBenchmark(
        name.c_str(), [shape, count](benchmark::State &state) { run(state, shape, count); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond)
        ->Iterations(11);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
