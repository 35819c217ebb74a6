// Schedules of algorithms written by hand.
#include "SampleSchedules.h"

#include "ScheduleBuilder.h"

namespace bagua::rt::testing {
namespace {

using S = ScheduleBuilder;

constexpr uint32_t k = 0, p = 1; // Loop variables.

/// Shards of a bucket over the world, cut at multiples of the grain.
struct Shards {
  E world, length, grain, grains;

  Shards(ScheduleBuilder &s, int64_t grainElements)
      : world(s.world()), length(s.length()), grain(s.constant(grainElements)),
        grains(ceilDiv(s.length(), s.constant(grainElements))) {}
  /// First element of shard `index`; of shard `world`: the bucket's length.
  E begin(E index) const { return min(length, grain * floorDiv(index * grains, world)); }
  E count(E index) const { return begin(index + 1) - begin(index); }
  E countMax() const { return min(length, grain * ceilDiv(grains, world)); }
};

/// Direct reduce-scatter and all-gather of `pieces`, see the users below.
struct Exchange {
  ScheduleBuilder &s;
  E one, world, rank, target, source, peer;
  explicit Exchange(ScheduleBuilder &builder)
      : s(builder), one(s.constant(1)), world(s.world()), rank(s.rank()),
        target((rank + s.loop(k)) % world), source((rank - s.loop(k)) % world), peer(s.loop(p)) {}
};

} // namespace

fb::ScheduleT gradientAllReduceSchedule() {
  ScheduleBuilder s("gradient_allreduce", 1, {fb::DType::F32, fb::DType::F64});
  Exchange x(s);
  Shards shards(s, 1);
  E eb = s.elementBytes(), zero = s.constant(0), n = x.world, r = x.rank;
  auto begin = [&](E i) { return shards.begin(i) * eb; };
  auto bytes = [&](E i) { return shards.count(i) * eb; };
  uint32_t mean = s.kernel("reduce_mean"), copy = s.kernel("copy");

  E many = 1 < n;
  s.program("gradient", fb::Event::Gradient, 2, select(many, s.constant(2), zero),
            select(many, s.length() * eb + (n - 2) * bytes(r), zero));
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  uint32_t parts = s.slots("parts", n, shards.countMax() * eb);
  uint32_t means = s.slots("means", n, shards.countMax() * eb);
  uint32_t sent = s.events("sent", n), arrived = s.events("arrived", n);
  uint32_t reduced = s.events("reduced", x.one), arrivedMean = s.events("arrived_mean", n);
  s.ifThen(many, [&] {
    s.line(3);
    s.forLoop(k, x.one, n, [&] {
      s.send(x.target, 0, S::range(g, begin(x.target), bytes(x.target)), {},
             S::event(sent, x.target));
      s.recv(x.source, 0, parts, x.source, bytes(r), {}, S::event(arrived, x.source));
    });
    auto all = std::make_unique<fb::RangesT>();
    all->variable = p;
    all->lower = zero.node;
    all->upper = n.node;
    all->ranges = S::list(S::range(g, begin(r), bytes(r), x.peer == r),
                          S::view(parts, x.peer, zero, bytes(r), x.peer != r));
    s.launch(mean, S::list(std::move(all)), S::list(S::one(S::range(g, begin(r), bytes(r)))),
             shards.count(r), S::list(S::eventsFor(p, zero, n, arrived, x.peer, x.peer != r)),
             S::event(reduced, zero));
    s.forLoop(k, x.one, n, [&] { s.release(parts, x.source); });
    s.line(4);
    s.forLoop(k, x.one, n, [&] {
      s.send(x.target, 1, S::range(g, begin(r), bytes(r)), S::list(S::event(reduced, zero)));
      s.recv(x.source, 1, means, x.source, bytes(x.source), {}, S::event(arrivedMean, x.source));
    });
    s.forLoop(k, x.one, n, [&] {
      // The peer may still be reading what it was sent of this shard.
      s.launch(copy, S::list(S::one(S::view(means, x.source, zero, bytes(x.source)))),
               S::list(S::one(S::range(g, begin(x.source), bytes(x.source)))),
               shards.count(x.source),
               S::list(S::event(arrivedMean, x.source), S::event(sent, x.source)));
      s.release(means, x.source);
    });
  });
  return s.take();
}

fb::ScheduleT bytegradSchedule(int64_t bits, int64_t block) {
  ScheduleBuilder s("bytegrad", static_cast<uint32_t>(block));
  Exchange x(s);
  Shards shards(s, block);
  E eb = s.elementBytes(), zero = s.constant(0), n = x.world, r = x.rank;
  auto begin = [&](E i) { return shards.begin(i) * eb; };
  auto bytes = [&](E i) { return shards.count(i) * eb; };
  // Per block a header of two floats, then codes padded to whole bytes; only the last is not full.
  auto packed = [&](E count) {
    return ceilDiv(count, s.constant(block)) * 8 + ceilDiv(count * bits, s.constant(8));
  };
  auto packedBegin = [&](E i) { return packed(shards.begin(i)); };
  auto packedBytes = [&](E i) { return packed(shards.count(i)); };
  std::vector<std::pair<std::string, int64_t>> codec = {{"bits", bits}, {"block", block}};
  uint32_t encode = s.kernel("minmax_encode", codec);
  uint32_t decodeMean = s.kernel("minmax_decode_reduce_mean", codec);
  uint32_t decode = s.kernel("minmax_decode", codec);

  E many = 1 < n;
  s.program("gradient", fb::Event::Gradient, 2, select(many, s.constant(2), zero),
            select(many, packed(s.length()) + (n - 2) * packedBytes(r), zero));
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  uint32_t coded = s.scratch("coded", packed(s.length()));
  uint32_t codedMean = s.scratch("coded_mean", packedBytes(r));
  uint32_t parts = s.slots("parts", n, packed(shards.countMax()));
  uint32_t means = s.slots("means", n, packed(shards.countMax()));
  uint32_t encoded = s.events("encoded", x.one), encodedMean = s.events("encoded_mean", x.one);
  uint32_t arrived = s.events("arrived", n), arrivedMean = s.events("arrived_mean", n);
  s.ifThen(many, [&] {
    s.line(3);
    s.launch(encode, S::list(S::one(S::range(g, zero, s.length() * eb))),
             S::list(S::one(S::range(coded, zero, packed(s.length())))), s.length(), {},
             S::event(encoded, zero));
    s.line(4);
    s.forLoop(k, x.one, n, [&] {
      s.send(x.target, 0, S::range(coded, packedBegin(x.target), packedBytes(x.target)),
             S::list(S::event(encoded, zero)));
      s.recv(x.source, 0, parts, x.source, packedBytes(r), {}, S::event(arrived, x.source));
    });
    s.line(5);
    auto all = std::make_unique<fb::RangesT>();
    all->variable = p;
    all->lower = zero.node;
    all->upper = n.node;
    all->ranges = S::list(S::range(coded, packedBegin(r), packedBytes(r), x.peer == r),
                          S::view(parts, x.peer, zero, packedBytes(r), x.peer != r));
    s.launch(decodeMean, S::list(std::move(all)), S::list(S::one(S::range(g, begin(r), bytes(r)))),
             shards.count(r), S::list(S::eventsFor(p, zero, n, arrived, x.peer, x.peer != r)));
    s.forLoop(k, x.one, n, [&] { s.release(parts, x.source); });
    s.line(6);
    s.launch(encode, S::list(S::one(S::range(g, begin(r), bytes(r)))),
             S::list(S::one(S::range(codedMean, zero, packedBytes(r)))), shards.count(r), {},
             S::event(encodedMean, zero));
    s.forLoop(k, x.one, n, [&] {
      s.send(x.target, 1, S::range(codedMean, zero, packedBytes(r)),
             S::list(S::event(encodedMean, zero)));
      s.recv(x.source, 1, means, x.source, packedBytes(x.source), {},
             S::event(arrivedMean, x.source));
    });
    s.line(7);
    s.launch(decode, S::list(S::one(S::range(codedMean, zero, packedBytes(r)))),
             S::list(S::one(S::range(g, begin(r), bytes(r)))), shards.count(r));
    s.forLoop(k, x.one, n, [&] {
      s.launch(decode, S::list(S::one(S::view(means, x.source, zero, packedBytes(x.source)))),
               S::list(S::one(S::range(g, begin(x.source), bytes(x.source)))),
               shards.count(x.source), S::list(S::event(arrivedMean, x.source)));
      s.release(means, x.source);
    });
  });
  return s.take();
}

fb::ScheduleT decentralizedSchedule() {
  ScheduleBuilder s("decentralized", 1, {fb::DType::F32, fb::DType::F64});
  E n = s.world(), r = s.rank(), zero = s.constant(0), one = s.constant(1);
  E bytes = s.length() * s.elementBytes();
  uint32_t mix = s.kernel("mix"), copy = s.kernel("copy");
  // Offsets -1 and 1. With one rank there is no neighbour, with two they are one, of both weights.
  E both = 2 < n, any = 1 < n;
  E before = (r - one) % n, after = (r + one) % n;
  E neighbours = select(both, s.constant(2), select(any, one, zero));

  s.program("before_forward", fb::Event::BeforeForward, 2, select(any, one, zero),
            neighbours * bytes);
  uint32_t w = s.jobBuffer("weight", fb::Role::Weight);
  uint32_t mixed = s.scratch("mixed", bytes);
  uint32_t in = s.slots("neighbours", neighbours, bytes);
  uint32_t sent = s.events("sent", neighbours), arrived = s.events("arrived", neighbours);
  auto whole = [&](uint32_t buffer) { return S::one(S::range(buffer, zero, bytes)); };
  auto received = [&](E slot) { return S::one(S::view(in, slot, zero, bytes)); };
  s.ifThen(any, [&] {
    s.line(5);
    s.send(after, 0, S::range(w, zero, bytes), {}, S::event(sent, zero));
    s.recv(before, 0, in, zero, bytes, {}, S::event(arrived, zero));
    s.ifThen(
        both,
        [&] {
          s.send(before, 1, S::range(w, zero, bytes), {}, S::event(sent, one));
          s.recv(after, 1, in, one, bytes, {}, S::event(arrived, one));
          s.line(6);
          s.launch(mix, S::list(whole(w), received(zero), received(one)), S::list(whole(mixed)),
                   s.length(), S::list(S::event(arrived, zero), S::event(arrived, one)), {},
                   {toFloat(one) / 3.0, toFloat(one) / 3.0});
          s.release(in, one);
        },
        [&] {
          s.line(6);
          s.launch(mix, S::list(whole(w), received(zero)), S::list(whole(mixed)), s.length(),
                   S::list(S::event(arrived, zero)), {}, {toFloat(s.constant(2)) / 3.0});
        });
    s.release(in, zero);
    s.line(7);
    s.wait(fb::Gate::BeforeUpdate);
    s.launch(copy, S::list(whole(mixed)), S::list(whole(w)), s.length(),
             S::list(S::eventsFor(p, zero, neighbours, sent, s.loop(p))));
  });
  return s.take();
}

fb::ScheduleT gossipMomentumSchedule() {
  ScheduleBuilder s("gossip_momentum", 1, {fb::DType::F32, fb::DType::F64});
  E zero = s.constant(0), one = s.constant(1), bytes = s.length() * s.elementBytes();
  E beta = s.floatParameter("beta", 0.9), lr = s.floatParameter("lr", 0.125, true);
  using Code = fb::MapInstruction; // Operation, operands: 0 Input, 1 Scalar, 2 Constant, 3 Add, …
  // beta * m + g; (x + y) * 0.5; w - lr * m.
  uint32_t accumulate = s.mapKernel(
      2, 1, {},
      {Code(1, 0, 0, 0), Code(0, 0, 0, 0), Code(5, 0, 1, 0), Code(0, 1, 0, 0), Code(3, 2, 3, 0)});
  uint32_t average = s.mapKernel(
      2, 0, {0.5},
      {Code(0, 0, 0, 0), Code(0, 1, 0, 0), Code(3, 0, 1, 0), Code(2, 0, 0, 0), Code(5, 2, 3, 0)});
  uint32_t update = s.mapKernel(
      2, 1, {},
      {Code(0, 0, 0, 0), Code(1, 0, 0, 0), Code(0, 1, 0, 0), Code(5, 1, 2, 0), Code(4, 0, 3, 0)});
  s.state("m");

  E partner = s.pairing(s.constant(7), s.step()), paired = partner != s.rank();
  s.program("gradient", fb::Event::Gradient, 1, select(paired, one, zero),
            select(paired, bytes, zero));
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  uint32_t w = s.jobBuffer("weight", fb::Role::Weight);
  uint32_t m = s.stateBuffer("m", 0, false, bytes), mNext = s.stateBuffer("m", 0, true, bytes);
  uint32_t mine = s.scratch("mine", bytes);
  uint32_t in = s.slots("in", one, bytes);
  uint32_t made = s.events("made", one), arrived = s.events("arrived", one);
  uint32_t sent = s.events("sent", one);
  auto whole = [&](uint32_t buffer) { return S::one(S::range(buffer, zero, bytes)); };
  s.line(5);
  s.launch(accumulate, S::list(whole(m), whole(g)), S::list(whole(mine)), s.length(), {},
           S::event(made, zero), {beta});
  s.line(6);
  s.send(partner, 0, S::range(mine, zero, bytes), S::list(S::event(made, zero)),
         S::event(sent, zero))
      .guard = paired.node;
  s.recv(partner, 0, in, zero, bytes, {}, S::event(arrived, zero)).guard = paired.node;
  s.line(7);
  s.launch(average, S::list(whole(mine), S::one(S::view(in, zero, zero, bytes))),
           S::list(whole(mNext)), s.length(), S::list(S::event(arrived, zero)))
      .guard = paired.node;
  s.release(in, zero).guard = paired.node;
  s.launch(s.kernel("copy"), S::list(whole(mine)), S::list(whole(mNext)), s.length()).guard =
      (partner == s.rank()).node;
  s.line(8);
  s.wait(fb::Gate::BeforeUpdate);
  s.launch(update, S::list(whole(w), whole(mNext)), S::list(whole(w)), s.length(), {}, {}, {lr})
      .if_finite = true;
  s.publish(0).if_finite = true;
  fb::ScheduleT schedule = s.take();
  schedule.owns_update = true;
  return schedule;
}

fb::ScheduleT keeperSchedule() {
  ScheduleBuilder s("keeper", 4);
  E zero = s.constant(0), one = s.constant(1), eb = s.elementBytes(), bytes = s.length() * eb;
  Shards shards(s, 4);
  E begin = shards.begin(s.rank()) * eb, count = shards.count(s.rank());
  using Code = fb::MapInstruction; // 0 Input, 2 Constant, 3 Add
  uint32_t add = s.mapKernel(2, 0, {}, {Code(0, 0, 0, 0), Code(0, 1, 0, 0), Code(3, 0, 1, 0)});
  uint32_t increment =
      s.mapKernel(1, 0, {1.0}, {Code(0, 0, 0, 0), Code(2, 0, 0, 0), Code(3, 0, 1, 0)});
  s.state("total");
  s.state("part", fb::StateDomain::Shard).on_resize = fb::OnResize::Repartition;
  s.state("count", fb::StateDomain::Scalar);
  fb::StateT &first = s.state("first", fb::StateDomain::Neighbors);
  first.copies = 2;
  first.initial_weight = true;
  first.on_resize = fb::OnResize::Zero;

  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  auto pair = [&](const char *name, uint32_t state, E size) {
    return std::pair{s.stateBuffer(name, state, false, size),
                     s.stateBuffer(name, state, true, size)};
  };
  auto [total, totalNext] = pair("total", 0, bytes);
  auto [part, partNext] = pair("part", 1, count * eb);
  auto [n, nNext] = pair("count", 2, eb);
  auto range = [&](uint32_t buffer, E size) { return S::one(S::range(buffer, zero, size)); };
  s.line(9);
  s.launch(add, S::list(range(total, bytes), range(g, bytes)), S::list(range(totalNext, bytes)),
           s.length());
  s.launch(add, S::list(range(part, count * eb), S::one(S::range(g, begin, count * eb))),
           S::list(range(partNext, count * eb)), count);
  s.launch(increment, S::list(range(n, eb)), S::list(range(nNext, eb)), one);
  s.wait(fb::Gate::BeforeUpdate);
  for (uint32_t state : {0u, 1u, 2u})
    s.publish(state).if_finite = true;
  return s.take();
}

namespace {

/// Sends all of buffer `from` to every other rank, and puts the mean of all ranks' into `to`, if
/// `guard` holds. Returns the waits after which `from` may be overwritten.
S::Waits exchangeMean(ScheduleBuilder &s, uint32_t from, uint32_t to, E guard = {}) {
  Exchange x(s);
  E zero = s.constant(0), bytes = s.length() * s.elementBytes();
  uint32_t in = s.slots("in", x.world, bytes);
  uint32_t sent = s.events("sent", x.world), arrived = s.events("arrived", x.world);
  s.forLoop(k, x.one, x.world, [&] {
    s.send(x.target, 0, S::range(from, zero, bytes), {}, S::event(sent, x.target)).guard =
        guard.node;
    s.recv(x.source, 0, in, x.source, bytes, {}, S::event(arrived, x.source)).guard = guard.node;
  });
  auto all = std::make_unique<fb::RangesT>();
  all->variable = p;
  all->lower = zero.node;
  all->upper = x.world.node;
  all->ranges = S::list(S::range(from, zero, bytes, x.peer == x.rank),
                        S::view(in, x.peer, zero, bytes, x.peer != x.rank));
  auto others = [&](uint32_t events) {
    return S::list(S::eventsFor(p, zero, x.world, events, x.peer, x.peer != x.rank));
  };
  s.launch(s.kernel("reduce_mean"), S::list(std::move(all)),
           S::list(S::one(S::range(to, zero, bytes))), s.length(), others(arrived))
      .guard = guard.node;
  s.forLoop(k, x.one, x.world, [&] { s.release(in, x.source).guard = guard.node; });
  return others(sent);
}

} // namespace

fb::ScheduleT asyncAverageSchedule(fb::IntervalUnit unit, uint32_t staleness, bool warmsUp) {
  std::string name = "async_average";
  if (warmsUp)
    name += "_warm";
  else if (unit == fb::IntervalUnit::Milliseconds)
    name += "_ms";
  ScheduleBuilder s(name, 1, {fb::DType::F32, fb::DType::F64});
  E zero = s.constant(0), one = s.constant(1), eb = s.elementBytes(), bytes = s.length() * eb;
  E every = s.parameter("interval", 2), after = s.parameter("warmup", 0);
  E many = 1 < s.world();
  using Code = fb::MapInstruction; // 0 Input, 2 Constant, 3 Add, 4 Sub
  uint32_t minus = s.mapKernel(2, 0, {}, {Code(0, 0, 0, 0), Code(0, 1, 0, 0), Code(4, 0, 1, 0)});
  uint32_t increment =
      s.mapKernel(1, 0, {1.0}, {Code(0, 0, 0, 0), Code(2, 0, 0, 0), Code(3, 0, 1, 0)});
  s.state("rounds", fb::StateDomain::Scalar);
  auto range = [&](uint32_t buffer, E size) { return S::one(S::range(buffer, zero, size)); };

  if (warmsUp) {
    E warm = s.step() < after;
    s.program("gradient", fb::Event::Gradient, 1, select(warm && many, one, zero),
              select(warm, (s.world() - 1) * bytes, zero));
    uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
    uint32_t mean = s.scratch("mean", bytes);
    s.line(3);
    S::Waits sent = exchangeMean(s, g, mean, warm);
    s.launch(s.kernel("copy"), S::list(range(mean, bytes)), S::list(range(g, bytes)), s.length(),
             std::move(sent))
        .guard = warm.node;
  }
  s.program("async", fb::Event::Async, 1, select(many, one, zero), (s.world() - 1) * bytes);
  s.interval(every, unit, after, staleness);
  uint32_t w = s.jobBuffer("weight", fb::Role::Weight);
  uint32_t average = s.scratch("average", bytes);
  uint32_t rounds = s.stateBuffer("rounds", 0, false, eb);
  uint32_t next = s.stateBuffer("rounds", 0, true, eb);
  s.line(5);
  S::Waits sent = exchangeMean(s, w, average);
  s.line(6);
  s.launch(minus, S::list(range(average, bytes), range(w, bytes)), S::list(range(w, bytes)),
           s.length(), std::move(sent));
  s.line(7);
  s.launch(increment, S::list(range(rounds, eb)), S::list(range(next, eb)), one);
  s.publish(0);
  return s.take();
}

const std::vector<SampleSchedule> &allSampleSchedules() {
  static const std::vector<SampleSchedule> samples = [] {
    std::vector<SampleSchedule> all = sampleSchedules();
    all.push_back({"gossip_momentum", [] { return gossipMomentumSchedule(); }});
    all.push_back({"keeper", [] { return keeperSchedule(); }});
    all.push_back({"async_average", [] { return asyncAverageSchedule(); }});
    all.push_back({"async_average_ms",
                   [] { return asyncAverageSchedule(fb::IntervalUnit::Milliseconds, 4); }});
    all.push_back({"async_average_warm",
                   [] { return asyncAverageSchedule(fb::IntervalUnit::Steps, 2, true); }});
    return all;
  }();
  return samples;
}

const std::vector<SampleSchedule> &sampleSchedules() {
  static const std::vector<SampleSchedule> samples = {
      {"gradient_allreduce", [] { return gradientAllReduceSchedule(); }},
      {"bytegrad", [] { return bytegradSchedule(); }},
      {"decentralized", [] { return decentralizedSchedule(); }},
  };
  return samples;
}

std::shared_ptr<const Schedule> loadOrDie(const fb::ScheduleT &schedule) {
  auto bytes = serialize(schedule);
  auto loaded = bytes.ok() ? Schedule::fromBytes(*bytes) : bytes.status();
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
    std::abort();
  }
  return *std::move(loaded);
}

} // namespace bagua::rt::testing
