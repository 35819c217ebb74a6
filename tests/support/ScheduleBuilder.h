// Writes schedules by hand, for tests: expressions as values, steps as calls. A mistake in a test's
// use of it shows in validate().
#pragma once

#include "bagua/Schedule.h"

#include <functional>
#include <map>
#include <tuple>

namespace bagua::rt::testing {

class ScheduleBuilder;

/// A node of the schedule's pool. Equal expressions are one node.
struct E {
  ScheduleBuilder *builder = nullptr;
  uint32_t node = kNone;
};

class ScheduleBuilder {
public:
  explicit ScheduleBuilder(std::string name, uint32_t grain = 1,
                           std::vector<fb::DType> dtypes = {fb::DType::F32});

  E expr(fb::ExprOp op, E a = {}, E b = {}, E c = {}, int64_t value = 0, double real = 0);
  E constant(int64_t value) { return expr(fb::ExprOp::ConstInt, {}, {}, {}, value); }
  E real(double value) { return expr(fb::ExprOp::ConstFloat, {}, {}, {}, 0, value); }
  E world() { return expr(fb::ExprOp::World); }
  E rank() { return expr(fb::ExprOp::Rank); }
  E localRank() { return expr(fb::ExprOp::LocalRank); }
  E localSize() { return expr(fb::ExprOp::LocalSize); }
  E nodes() { return expr(fb::ExprOp::Nodes); }
  E length() { return expr(fb::ExprOp::Length); }
  E elementBytes() { return expr(fb::ExprOp::ElementBytes); }
  E step() { return expr(fb::ExprOp::Step); }
  E loop(uint32_t id) { return expr(fb::ExprOp::Loop, {}, {}, {}, id); }
  E parameter(const std::string &name, int64_t value, bool perStep = false);
  E floatParameter(const std::string &name, double value, bool perStep = false);
  E bucket() { return expr(fb::ExprOp::Bucket); }
  /// This rank's partner, or itself.
  E pairing(E seed, E round) { return expr(fb::ExprOp::Pairing, seed, round); }

  uint32_t kernel(const std::string &name,
                  std::vector<std::pair<std::string, int64_t>> attributes = {});

  /// Kernel "map" with one output: the last instruction's value. Operations are
  /// bagua::kernels::MapOp.
  uint32_t mapKernel(uint16_t inputs, uint16_t scalars, std::vector<double> constants,
                     std::vector<fb::MapInstruction> code, std::vector<uint8_t> broadcast = {});

  /// Kernel "codec_…" with one header of each block, its greatest magnitude ÷ 127, and codes of 8
  /// bits.
  uint32_t absMaxCodecKernel(const std::string &name, uint32_t block);

  /// Over the bucket, beginning with zeros; the caller may change what is returned.
  fb::StateT &state(const std::string &name, fb::StateDomain domain = fb::StateDomain::Bucket);

  /// Later declarations and steps belong to this program.
  void program(const std::string &name, fb::Event event, uint32_t channels, E rounds, E wireBytes);
  /// Of the program at hand, an async one.
  void interval(E every, fb::IntervalUnit unit, E after, uint32_t staleness);
  uint32_t jobBuffer(const std::string &name, fb::Role role);
  uint32_t scratch(const std::string &name, E bytes);
  /// A buffer for state number `state`; "name" or "name_next".
  uint32_t stateBuffer(const std::string &name, uint32_t state, bool next, E bytes);
  uint32_t slots(const std::string &name, E count, E bytes);
  uint32_t events(const std::string &name, E count);

  using Ref = std::unique_ptr<fb::EventRefT>;
  static Ref event(uint32_t id, E index, E when = {});
  /// Every event whose index is in [lower, upper) and, with the loop variable `variable`, `when`.
  static Ref eventsFor(uint32_t variable, E lower, E upper, uint32_t id, E index, E when = {});
  using RangePtr = std::unique_ptr<fb::RangeT>;
  static RangePtr range(uint32_t buffer, E offset, E bytes, E when = {});
  static RangePtr view(uint32_t slots, E index, E offset, E bytes, E when = {});
  using RangesPtr = std::unique_ptr<fb::RangesT>;
  static RangesPtr one(RangePtr range);

  template <typename... T> static auto list(T... entries) {
    std::vector<std::common_type_t<T...>> result;
    (result.push_back(std::move(entries)), ...);
    return result;
  }
  using Waits = std::vector<Ref>;

  void forLoop(uint32_t variable, E lower, E upper, const std::function<void()> &body);
  void ifThen(E condition, const std::function<void()> &then,
              const std::function<void()> &otherwise = {});
  fb::StepT &send(E peer, uint32_t channel, RangePtr source, Waits waits = {}, Ref signal = {});
  fb::StepT &recv(E peer, uint32_t channel, uint32_t slots, E index, E bytes, Waits waits = {},
                  Ref signal = {});
  fb::StepT &release(uint32_t slots, E index, Waits waits = {}, fb::Queue queue = fb::Queue::Cpu);
  fb::StepT &launch(uint32_t kernel, std::vector<RangesPtr> inputs, std::vector<RangesPtr> outputs,
                    E count, Waits waits = {}, Ref signal = {}, std::vector<E> scalars = {});
  fb::StepT &wait(fb::Gate gate, Waits waits = {}, Ref signal = {});
  fb::StepT &publish(uint32_t state, Waits waits = {});

  /// Steps added from now on come from this line of "<name>.mlir".
  void line(uint32_t line);

  fb::ScheduleT take() { return std::move(schedule_); }

private:
  template <typename Action>
  fb::StepT &add(Action action, fb::Queue queue, Waits waits = {}, Ref signal = {});

  fb::ScheduleT schedule_;
  std::map<std::tuple<fb::ExprOp, uint32_t, uint32_t, uint32_t, int64_t, double>, uint32_t> known_;
  std::vector<std::vector<std::unique_ptr<fb::StepT>> *> body_;
  uint32_t location_ = kNone;
};

E operator+(E a, E b);
E operator-(E a, E b);
E operator*(E a, E b);
E operator%(E a, E b);
E operator==(E a, E b);
E operator!=(E a, E b);
E operator<(E a, E b);
E operator&&(E a, E b);
E operator+(E a, int64_t b);
E operator-(E a, int64_t b);
E operator*(E a, int64_t b);
E operator==(E a, int64_t b);
E operator<(int64_t a, E b);
E floorDiv(E a, E b);
E ceilDiv(E a, E b);
E min(E a, E b);
E select(E condition, E then, E otherwise);
E toFloat(E a);
E operator/(E a, double b); ///< f64

} // namespace bagua::rt::testing
