// The shipped algorithms as the papers and SPEC.md define them, written apart from everything that
// is tested: plain loops over vectors, no kernel, no interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bagua::test {

template <typename T> using PerRank = std::vector<std::vector<T>>;

template <typename T> struct OracleResult {
  PerRank<T> values;
  std::vector<int64_t> wireBytes; ///< By rank.
};

/// Shard `index` of `world` of `length` elements at grain `grain`: [begin, end).
struct OracleShard {
  int64_t begin, end;
};
OracleShard oracleShard(int64_t length, int64_t grain, int64_t index, int64_t world);

/// Mean of all ranks' gradients, a left fold by rank and one division.
template <typename T> OracleResult<T> oracleGradientAllreduce(const PerRank<T> &gradients);

/// Scatter-reduce with a min-max codec in both rounds (C_LP_S of the paper, without error
/// feedback).
OracleResult<float> oracleBytegrad(const PerRank<float> &gradients, int bits, int64_t block);

/// w + sum of a * (neighbour - w) over a ring's two neighbours, each of weight 1/3, equal ones
/// merged.
template <typename T> OracleResult<T> oracleDecentralized(const PerRank<T> &weights);

} // namespace bagua::test
