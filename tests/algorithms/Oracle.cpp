#include "Oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

namespace bagua::test {
namespace {

/// SPEC.md K5: there is one NaN.
template <typename T> T canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <typename T> T meanOf(const std::vector<T> &values) {
  T sum = values.front();
  for (size_t i = 1; i < values.size(); ++i)
    sum = sum + values[i];
  return canonical(sum / static_cast<T>(values.size()));
}

/// One block through the codec: what its receivers see (SPEC.md, "minmax").
void throughMinMax(float *x, int64_t count, int bits) {
  float lo = x[0], hi = x[0];
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite = finite && std::isfinite(x[i]);
    lo = std::min(lo, x[i]);
    hi = std::max(hi, x[i]);
  }
  if (!finite) {
    std::fill(x, x + count, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  lo = lo == 0.0f ? 0.0f : lo;
  hi = hi == 0.0f ? 0.0f : hi;
  const int levels = (1 << bits) - 1;
  const double range = double{hi} - double{lo};
  auto step = static_cast<float>(range / levels);
  if (double{step} * levels < range)
    step = std::nextafter(step, std::numeric_limits<float>::infinity());
  const float scale = step > 0x1p110f ? 0x1p-2f : step > 0 && step < 0x1p-100f ? 0x1p64f : 1.0f;
  const float inverse = step == 0 ? 0.0f : 1.0f / (step * scale);
  for (int64_t i = 0; i < count; ++i) {
    float scaled = (x[i] * scale - lo * scale) * inverse;
    float code = std::nearbyint(std::min(scaled, static_cast<float>(levels)));
    if (step <= 0x1p110f) {
      x[i] = lo + code * step;
    } else {
      constexpr float kQuarter = std::numeric_limits<float>::max() / 4;
      x[i] = 4 * std::clamp(lo / 4 + code * (step / 4), -kQuarter, kQuarter);
    }
  }
}

/// Elements [begin, end) of `x`, block by block; begin is a block's first element.
void throughMinMax(std::vector<float> &x, int64_t begin, int64_t end, int bits, int64_t block) {
  for (int64_t at = begin; at < end; at += block)
    throughMinMax(x.data() + at, std::min(block, end - at), bits);
}

int64_t packedBytes(int64_t count, int bits, int64_t block) {
  int64_t bytes = 0;
  for (int64_t at = 0; at < count; at += block)
    bytes += 8 + (std::min(block, count - at) * bits + 7) / 8;
  return bytes;
}

/// Every rank sends each other rank's shard to its owner, then its own shard to each other rank.
template <typename F>
std::vector<int64_t> scatterGatherBytes(int64_t length, int64_t grain, int64_t world, F &&bytesOf) {
  std::vector<int64_t> sent(static_cast<size_t>(world), 0);
  for (int64_t rank = 0; rank < world; ++rank)
    for (int64_t peer = 0; peer < world; ++peer)
      if (peer != rank)
        for (int64_t owner : {peer, rank}) {
          OracleShard shard = oracleShard(length, grain, owner, world);
          sent[static_cast<size_t>(rank)] += bytesOf(shard.end - shard.begin);
        }
  return sent;
}

} // namespace

OracleShard oracleShard(int64_t length, int64_t grain, int64_t index, int64_t world) {
  const int64_t grains = (length + grain - 1) / grain;
  return {std::min(length, grain * (index * grains / world)),
          std::min(length, grain * ((index + 1) * grains / world))};
}

template <typename T> OracleResult<T> oracleGradientAllreduce(const PerRank<T> &gradients) {
  const auto world = static_cast<int64_t>(gradients.size());
  const auto length = static_cast<int64_t>(gradients.front().size());
  OracleResult<T> result{gradients, {}};
  result.wireBytes = scatterGatherBytes(
      length, 1, world, [](int64_t n) { return n * static_cast<int64_t>(sizeof(T)); });
  if (world == 1)
    return result;
  std::vector<T> values(gradients.size());
  for (size_t i = 0; i < gradients.front().size(); ++i) {
    for (size_t rank = 0; rank < gradients.size(); ++rank)
      values[rank] = gradients[rank][i];
    result.values.front()[i] = meanOf(values);
  }
  for (auto &of : result.values)
    of = result.values.front();
  return result;
}
template OracleResult<float> oracleGradientAllreduce(const PerRank<float> &);
template OracleResult<double> oracleGradientAllreduce(const PerRank<double> &);

OracleResult<float> oracleBytegrad(const PerRank<float> &gradients, int bits, int64_t block) {
  const auto world = static_cast<int64_t>(gradients.size());
  const auto length = static_cast<int64_t>(gradients.front().size());
  OracleResult<float> result{gradients, {}};
  result.wireBytes = scatterGatherBytes(length, block, world,
                                        [&](int64_t n) { return packedBytes(n, bits, block); });
  if (world == 1)
    return result;
  PerRank<float> seen = gradients; // What owners decode of each rank, themselves included.
  std::vector<float> mean(gradients.front().size()), values(gradients.size());
  for (int64_t owner = 0; owner < world; ++owner) {
    OracleShard shard = oracleShard(length, block, owner, world);
    for (auto &of : seen)
      throughMinMax(of, shard.begin, shard.end, bits, block);
    for (auto i = static_cast<size_t>(shard.begin); i < static_cast<size_t>(shard.end); ++i) {
      for (size_t rank = 0; rank < seen.size(); ++rank)
        values[rank] = seen[rank][i];
      mean[i] = meanOf(values);
    }
    throughMinMax(mean, shard.begin, shard.end, bits, block);
  }
  for (auto &of : result.values)
    of = mean;
  return result;
}

template <typename T> OracleResult<T> oracleDecentralized(const PerRank<T> &weights) {
  const auto world = static_cast<int64_t>(weights.size());
  const auto length = static_cast<int64_t>(weights.front().size());
  OracleResult<T> result{weights, {}};
  // Neighbours in the order in which the topology names them, equal ones carried by the first.
  std::vector<std::pair<int64_t, int>> neighbours; // Offset mod world, thirds.
  for (int64_t offset : {int64_t{-1}, int64_t{1}}) {
    int64_t distance = (offset + world) % world;
    if (distance == 0)
      continue; // Oneself.
    auto same = std::find_if(neighbours.begin(), neighbours.end(),
                             [&](auto &known) { return known.first == distance; });
    if (same != neighbours.end())
      ++same->second;
    else
      neighbours.emplace_back(distance, 1);
  }
  result.wireBytes.assign(static_cast<size_t>(world),
                          static_cast<int64_t>(neighbours.size() * sizeof(T)) * length);
  if (neighbours.empty())
    return result;
  for (int64_t rank = 0; rank < world; ++rank)
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      const T w = weights[static_cast<size_t>(rank)][i];
      T sum = 0;
      for (size_t k = 0; k < neighbours.size(); ++k) {
        auto [distance, thirds] = neighbours[k];
        const auto a = static_cast<T>(thirds / 3.0);
        const T term = a * (weights[static_cast<size_t>((rank + distance) % world)][i] - w);
        sum = k == 0 ? term : sum + term;
      }
      result.values[static_cast<size_t>(rank)][i] = canonical(w + sum);
    }
  return result;
}
template OracleResult<float> oracleDecentralized(const PerRank<float> &);
template OracleResult<double> oracleDecentralized(const PerRank<double> &);

} // namespace bagua::test
