// Rounds of async handlers, at the ends of steps that all ranks make together.
#include "../Rounds.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace mlir;

namespace bagua::compiler {
namespace {

/// weight += delta, one rounding; one NaN for all (K5).
template <typename T> void add(Bytes &weight, const Bytes &delta) {
  for (size_t at = 0; at < weight.size(); at += sizeof(T)) {
    T left, right;
    std::memcpy(&left, weight.data() + at, sizeof(T));
    std::memcpy(&right, delta.data() + at, sizeof(T));
    T sum = left + right;
    if (std::isnan(sum))
      sum = std::numeric_limits<T>::quiet_NaN();
    std::memcpy(weight.data() + at, &sum, sizeof(T));
  }
}

} // namespace

FailureOr<Rounds> Rounds::create(Operation *op, int64_t every, int64_t after, int64_t staleness,
                                 bool timed) {
  if (every < 1)
    return op->emitOpError("expects every of at least 1, got ") << every;
  if (after < 0)
    return op->emitOpError("expects after of at least 0, got ") << after;
  return Rounds(timed ? 1 : every, after, staleness);
}

LogicalResult Rounds::atBoundary(const Inputs &inputs, Outputs &outputs, Run run) {
  if (inputs.world == 1)
    return success();
  int64_t boundary = inputs.firstStep + static_cast<int64_t>(outputs.weights.size());
  if (underWay_ && underWay_->addedAt <= boundary)
    finish(inputs, outputs);
  isDue_ |= boundary % every_ == 0 && boundary >= after_;
  if (!isDue_ || underWay_)
    return success();
  isDue_ = false;
  std::vector<Bytes> snapshots = outputs.weights.back();
  if (failed(run(next_)))
    return failure();
  ++next_;
  underWay_ = UnderWay{boundary + staleness_, std::move(outputs.weights.back())};
  outputs.weights.back() = std::move(snapshots);
  return success();
}

void Rounds::finish(const Inputs &inputs, Outputs &outputs) {
  if (!underWay_)
    return;
  for (size_t rank = 0; rank < underWay_->deltas.size(); ++rank) {
    Bytes &weight = outputs.weights.back()[rank];
    if (inputs.dtype == kernels::DType::F32)
      add<float>(weight, underWay_->deltas[rank]);
    else
      add<double>(weight, underWay_->deltas[rank]);
  }
  underWay_.reset();
}

} // namespace bagua::compiler
