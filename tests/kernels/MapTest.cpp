// Map bytecode: the reference against an oracle, every target against the reference, and what
// validateMap() refuses.
#include "MapTestSupport.h"

namespace bagua::kernels {
namespace {

template <typename T> constexpr DType kDType = sizeof(T) == 4 ? DType::F32 : DType::F64;

Kernel mustFindMap(const MapProgram &program, DType dtype, bool reference = false) {
  Kernel kernel;
  std::string error;
  EXPECT_EQ(findMap(share(program), dtype, kernel, error, reference), FindError::None) << error;
  return kernel;
}

constexpr size_t kNoAlias = SIZE_MAX;

/// Runs `kernel` in guarded memory; output k lies in input aliases[k] unless that is kNoAlias.
/// Returns all outputs, and fails if an input that no output lies in changes.
std::vector<Bytes> launchMap(const Kernel &kernel, size_t count, const std::vector<Bytes> &inputs,
                             const std::vector<double> &scalars, std::vector<size_t> aliases = {},
                             const std::vector<size_t> &cuts = {},
                             GuardedBytes::Place place = GuardedBytes::Place::AtEnd) {
  aliases.resize(kernel.outputs, kNoAlias);
  std::vector<std::unique_ptr<GuardedBytes>> memory;
  std::vector<std::span<const std::byte>> views;
  for (size_t k = 0; k < inputs.size(); ++k) {
    EXPECT_EQ(inputs[k].size(), kernel.inputBytes(count, k));
    memory.push_back(std::make_unique<GuardedBytes>(inputs[k], place));
    views.push_back(memory.back()->bytes());
  }
  std::vector<std::span<std::byte>> outputs;
  for (size_t alias : aliases) {
    if (alias != kNoAlias) {
      outputs.push_back(memory[alias]->bytes());
      continue;
    }
    memory.push_back(std::make_unique<GuardedBytes>(kernel.outputBytes(count), place));
    outputs.push_back(memory.back()->bytes());
    std::fill(outputs.back().begin(), outputs.back().end(), kPoison);
  }
  const Args args{views, outputs, scalars, count};
  size_t begin = 0;
  for (size_t cut : cuts) {
    kernel.run(kernel, args, begin, cut);
    begin = cut;
  }
  kernel.run(kernel, args, begin, count);
  for (size_t k = 0; k < inputs.size(); ++k)
    if (std::find(aliases.begin(), aliases.end(), k) == aliases.end()) {
      EXPECT_TRUE(std::equal(views[k].begin(), views[k].end(), inputs[k].begin()))
          << "input " << k << " changed";
    }
  std::vector<Bytes> results;
  for (auto output : outputs)
    results.emplace_back(output.begin(), output.end());
  return results;
}

template <typename T>
std::string firstDifference(const std::vector<Bytes> &got, const std::vector<Bytes> &expected) {
  for (size_t k = 0; k < expected.size(); ++k)
    if (std::string text = difference<T>(got[k], expected[k]); !text.empty())
      return "output " + std::to_string(k) + ": " + text;
  return "";
}

// --- One operation on one element against an oracle that shares no code with the reference.

template <typename T> struct Wider;
template <> struct Wider<float> {
  using Type = double;
};
template <> struct Wider<double> {
  using Type = __float128;
};

/// Zeros, denormals, the borders of both, integers and halves, the largest, infinities, NaN.
template <typename T> std::vector<T> edgeValues() {
  using Limits = std::numeric_limits<T>;
  const T inInteger = T{1} / Limits::epsilon(); // From here on, all values are integers.
  std::vector<T> values;
  for (T x : {T{0},
              Limits::denorm_min(),
              Limits::min() - Limits::denorm_min(),
              Limits::min(),
              T{0.25},
              T{0.5},
              std::nextafter(T{0.5}, T{0}),
              T{1},
              std::nextafter(T{1}, T{2}),
              T{1.5},
              T{2.5},
              T{3},
              T{1} / T{3},
              inInteger / 2 - T{0.5},
              inInteger / 2 + T{0.5},
              inInteger - 1,
              inInteger,
              inInteger * 2 + 2,
              std::sqrt(Limits::max()),
              Limits::max() / 2,
              Limits::max(),
              Limits::infinity()}) {
    values.push_back(x);
    values.push_back(-x);
  }
  values.push_back(Limits::quiet_NaN());
  values.push_back(-Limits::quiet_NaN());
  return values;
}

/// Square root in the wider format: two steps of Newton's method from the narrow one.
double widerSqrt(double x) { return std::sqrt(x); }
__float128 widerSqrt(__float128 x) {
  __float128 root = std::sqrt(static_cast<double>(x));
  for (int step = 0; step < 2 && root > 0 && root <= DBL_MAX; ++step)
    root = (root + x / root) / 2;
  return root;
}

/// To an integer as the words say: the neighbours of x are found by comparing, not by rounding.
template <typename T> T oracleFloor(T x) {
  if (!(std::fabs(x) < T{1} / std::numeric_limits<T>::epsilon()))
    return x;
  const T whole = static_cast<T>(static_cast<long long>(x)); // Towards zero.
  return std::copysign(whole > x ? whole - 1 : whole, x);
}
template <typename T> T oracleRint(T x) {
  if (!(std::fabs(x) < T{1} / std::numeric_limits<T>::epsilon()))
    return x;
  const T down = oracleFloor(x), above = x - down; // Exact.
  const bool odd = static_cast<long long>(down) % 2 != 0;
  const T result = above > T{0.5} || (above == T{0.5} && odd) ? down + 1 : down;
  return std::copysign(result, x);
}

/// Comparisons yield 0 or 1.
template <typename T> T oracle(MapOp op, T a, T b, T c) {
  using W = typename Wider<T>::Type;
  const bool nan = a != a || b != b;
  switch (op) {
  case MapOp::Add:
    return static_cast<T>(W(a) + W(b));
  case MapOp::Sub:
    return static_cast<T>(W(a) - W(b));
  case MapOp::Mul:
    return static_cast<T>(W(a) * W(b));
  case MapOp::Div:
    return static_cast<T>(W(a) / W(b));
  case MapOp::Fma:
    // The product is exact in 128 bits; the sum is rounded twice, which no pair of these values
    // shows.
    return static_cast<T>(static_cast<__float128>(a) * static_cast<__float128>(b) +
                          static_cast<__float128>(c));
  case MapOp::Sqrt:
    return static_cast<T>(widerSqrt(W(a)));
  case MapOp::Neg:
    return std::copysign(a, std::signbit(a) ? T{1} : T{-1});
  case MapOp::Abs:
    return std::copysign(a, T{1});
  case MapOp::Sign:
    return a == 0 || a != a ? a : std::copysign(T{1}, a);
  case MapOp::Min:
  case MapOp::Max: {
    if (nan)
      return std::numeric_limits<T>::quiet_NaN();
    const bool less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
    return less == (op == MapOp::Min) ? a : b;
  }
  case MapOp::Rint:
    return oracleRint(a);
  case MapOp::Floor:
    return oracleFloor(a);
  case MapOp::Lt:
    return !nan && a < b;
  case MapOp::Le:
    return !nan && !(b < a);
  case MapOp::Eq:
    return !nan && !(a < b) && !(b < a);
  case MapOp::Ne:
    return nan || a < b || b < a;
  default:
    ADD_FAILURE() << "no oracle for operation " << static_cast<int>(op);
    return 0;
  }
}

/// Operations on numbers, over three inputs. Booleans are stored as 0 and 1.
MapProgram oneOperation(MapOp op) {
  Builder builder;
  uint16_t in[] = {builder.input(), builder.input(), builder.input()};
  const bool unary = op == MapOp::Sqrt || op == MapOp::Neg || op == MapOp::Abs ||
                     op == MapOp::Sign || op == MapOp::Rint || op == MapOp::Floor;
  uint16_t value = builder.add(op, in[0], unary ? 0 : in[1], op == MapOp::Fma ? in[2] : 0);
  if (op >= MapOp::Lt && op <= MapOp::Ne) {
    const uint16_t one = builder.constant(1), zero = builder.constant(0);
    value = builder.add(MapOp::Select, value, one, zero);
  }
  return builder.output(value).program;
}

template <typename T>
std::vector<Bytes> edgeInputs(std::vector<T> &a, std::vector<T> &b, std::vector<T> &c) {
  const std::vector<T> edges = edgeValues<T>();
  const std::vector<T> random = randomValues<T>(500, 3, Data::AnyBits);
  for (T x : edges)
    for (T y : edges)
      for (T z : {T{0}, -T{0}, T{1}, -std::numeric_limits<T>::max(),
                  std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()}) {
        a.push_back(x);
        b.push_back(y);
        c.push_back(z);
      }
  const std::vector<T> normal = randomValues<T>(1500, 4, Data::Normal);
  for (size_t i = 0; i + 2 < random.size(); ++i) {
    a.push_back(random[i]), b.push_back(random[i + 1]), c.push_back(random[i + 2]);
    a.push_back(normal[3 * i]), b.push_back(normal[3 * i + 1]), c.push_back(normal[3 * i + 2]);
  }
  return {toBytes(a), toBytes(b), toBytes(c)};
}

const MapOp kNumberOps[] = {MapOp::Add,  MapOp::Sub,  MapOp::Mul,   MapOp::Div,  MapOp::Fma,
                            MapOp::Sqrt, MapOp::Neg,  MapOp::Abs,   MapOp::Sign, MapOp::Min,
                            MapOp::Max,  MapOp::Rint, MapOp::Floor, MapOp::Lt,   MapOp::Le,
                            MapOp::Eq,   MapOp::Ne};

template <typename T> void referenceEqualsOracle() {
  std::vector<T> a, b, c;
  const std::vector<Bytes> inputs = edgeInputs(a, b, c);
  for (MapOp op : kNumberOps) {
    auto got = valuesOf<T>(
        launchMap(mustFindMap(oneOperation(op), kDType<T>, true), a.size(), inputs, {})[0]);
    size_t wrong = 0;
    for (size_t i = 0; i < a.size() && wrong < 5; ++i) {
      T expected = oracle(op, a[i], b[i], c[i]);
      if (expected != expected)
        expected = std::numeric_limits<T>::quiet_NaN();
      if (std::memcmp(&got[i], &expected, sizeof(T)) != 0) {
        ADD_FAILURE() << "operation " << static_cast<int>(op) << " of " << a[i] << ", " << b[i]
                      << ", " << c[i] << ": got " << got[i] << ", expected " << expected;
        ++wrong;
      }
    }
  }
}

TEST(MapReferenceTest, EqualsOracleF32) { referenceEqualsOracle<float>(); }
TEST(MapReferenceTest, EqualsOracleF64) { referenceEqualsOracle<double>(); }

TEST(MapReferenceTest, LogicAndSelect) {
  for (int bits = 0; bits < 4; ++bits) {
    Builder builder;
    const uint16_t x = builder.input(), y = builder.input(), zero = builder.constant(0);
    const uint16_t p = builder.add(MapOp::Lt, zero, x), q = builder.add(MapOp::Lt, zero, y);
    const uint16_t values[] = {builder.add(MapOp::And, p, q), builder.add(MapOp::Or, p, q),
                               builder.add(MapOp::Not, p),
                               builder.add(MapOp::Select, p, q, builder.add(MapOp::Not, q))};
    for (uint16_t value : values)
      builder.output(builder.add(MapOp::Select, value, x, zero));
    const bool a = (bits & 1) != 0, b = (bits & 2) != 0;
    const float xValue = a ? 3.0f : -3.0f, yValue = b ? 2.0f : -2.0f;
    auto got = launchMap(mustFindMap(builder.program, DType::F32, true), 1,
                         {toBytes<float>({xValue}), toBytes<float>({yValue})}, {});
    const bool expected[] = {a && b, a || b, !a, a ? b : !b};
    for (size_t k = 0; k < 4; ++k)
      EXPECT_EQ(valuesOf<float>(got[k])[0], expected[k] ? xValue : 0.0f) << k << ", " << bits;
  }
}

TEST(MapReferenceTest, FmaRoundsOnceAndNothingIsContracted) {
  const float x = 1 + 0x1p-12f, y = -(1 + 0x1p-11f);
  Builder builder;
  const uint16_t a = builder.input(), b = builder.input();
  const uint16_t fused = builder.add(MapOp::Fma, a, a, b);
  const uint16_t sum = builder.add(MapOp::Add, builder.add(MapOp::Mul, a, a), b);
  builder.output(fused).output(sum);
  for (bool reference : {true, false}) {
    auto got = launchMap(mustFindMap(builder.program, DType::F32, reference), 1,
                         {toBytes<float>({x}), toBytes<float>({y})}, {});
    EXPECT_EQ(valuesOf<float>(got[0])[0], 0x1p-24f);
    EXPECT_EQ(valuesOf<float>(got[1])[0], 0.0f);
  }
}

TEST(MapReferenceTest, ScalarsAndConstantsAreRoundedOnceToTheDType) {
  Builder builder;
  const double third = 1.0 / 3.0;
  const uint16_t constant = builder.constant(third), scalar = builder.scalar();
  builder.output(constant).output(builder.add(MapOp::Mul, constant, scalar));
  for (bool reference : {true, false}) {
    auto f32 = launchMap(mustFindMap(builder.program, DType::F32, reference), 3, {}, {third});
    const float rounded = static_cast<float>(third);
    EXPECT_EQ(valuesOf<float>(f32[0]), std::vector<float>(3, rounded));
    EXPECT_EQ(valuesOf<float>(f32[1]), std::vector<float>(3, rounded * rounded));
    auto f64 = launchMap(mustFindMap(builder.program, DType::F64, reference), 3, {}, {third});
    EXPECT_EQ(valuesOf<double>(f64[0]), std::vector<double>(3, third));
    EXPECT_EQ(valuesOf<double>(f64[1]), std::vector<double>(3, third * third));
  }
}

/// The worked example of SPEC.md.
TEST(MapReferenceTest, WorkedExample) {
  Builder builder;
  const uint16_t m = builder.input(), g = builder.input(), beta = builder.scalar();
  const uint16_t one = builder.constant(1), rest = builder.add(MapOp::Sub, one, beta);
  const uint16_t a = builder.add(MapOp::Mul, beta, m), b = builder.add(MapOp::Mul, rest, g);
  builder.output(builder.add(MapOp::Add, a, b));
  for (bool reference : {true, false}) {
    auto got = launchMap(mustFindMap(builder.program, DType::F32, reference), 2,
                         {toBytes<float>({4, 8}), toBytes<float>({1, -2})}, {0.75}, {0});
    EXPECT_EQ(valuesOf<float>(got[0]), (std::vector<float>{3.25f, 5.5f}));
  }
}

// --- Every target against the reference.

class MapTargetTest : public TargetTest {};

template <typename T> void edgesEqualReference() {
  std::vector<T> a, b, c;
  const std::vector<Bytes> inputs = edgeInputs(a, b, c);
  for (MapOp op : kNumberOps) {
    const MapProgram program = oneOperation(op);
    auto expected = launchMap(mustFindMap(program, kDType<T>, true), a.size(), inputs, {});
    auto got = launchMap(mustFindMap(program, kDType<T>), a.size(), inputs, {});
    EXPECT_EQ(firstDifference<T>(got, expected), "") << "operation " << static_cast<int>(op);
  }
}

TEST_P(MapTargetTest, SameBitsAsReferenceOnEdgeValuesF32) { edgesEqualReference<float>(); }
TEST_P(MapTargetTest, SameBitsAsReferenceOnEdgeValuesF64) { edgesEqualReference<double>(); }

/// A program of up to `instructions` instructions that validateMap() accepts.
MapProgram randomProgram(std::mt19937_64 &random, size_t instructions) {
  Builder builder;
  std::vector<uint16_t> numbers;
  const size_t inputs = random() % 6, scalars = random() % 3, constants = random() % 3;
  for (size_t k = 0; k < inputs; ++k)
    numbers.push_back(builder.input(random() % 5 == 0));
  for (size_t k = 0; k < scalars; ++k)
    numbers.push_back(builder.scalar());
  const double values[] = {0, -0.0, 1, 0.5, 1e-3, 3, -1, 1e30};
  for (size_t k = 0; k < constants || numbers.empty(); ++k)
    numbers.push_back(builder.constant(values[random() % std::size(values)]));
  growRandomly(builder, random, instructions, numbers);
  const size_t outputs = 1 + random() % 4;
  for (size_t k = 0; k < outputs; ++k)
    builder.output(pickRandomly(random, numbers));
  return builder.program;
}

/// Each output lies in an input of its own, or in none.
std::vector<size_t> randomAliases(std::mt19937_64 &random, const MapProgram &program) {
  std::vector<size_t> inputs, aliases;
  for (size_t k = 0; k < program.inputs; ++k)
    if (program.broadcast[k] == 0)
      inputs.push_back(k);
  std::shuffle(inputs.begin(), inputs.end(), random);
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const bool alias = !inputs.empty() && random() % 4 != 0;
    aliases.push_back(alias ? inputs.back() : kNoAlias);
    if (alias)
      inputs.pop_back();
  }
  return aliases;
}

template <typename T>
std::vector<Bytes> randomInputs(const MapProgram &program, size_t count, unsigned seed) {
  std::vector<Bytes> inputs;
  for (size_t k = 0; k < program.inputs; ++k)
    inputs.push_back(toBytes(randomValues<T>(program.broadcast[k] != 0 ? 1 : count,
                                             seed * 100 + static_cast<unsigned>(k),
                                             (seed + k) % 3 == 0 ? Data::AnyBits : Data::Normal)));
  return inputs;
}

template <typename T> void randomProgramsEqualReference(unsigned firstSeed) {
  std::vector<size_t> counts = tailCounts();
  counts.insert(counts.end(), {1024, 1025, 2050, 4099});
  for (unsigned seed = firstSeed; seed < firstSeed + 150; ++seed) {
    std::mt19937_64 random(seed);
    const MapProgram program = randomProgram(random, 1 + random() % (seed % 10 == 0 ? 256 : 24));
    ASSERT_EQ(validateMap(program), "") << "seed " << seed;
    const std::vector<double> scalars = {0.9, 1.0 / 3.0};
    const std::span<const double> used(scalars.data(), program.scalars);
    const std::vector<double> given(used.begin(), used.end());
    Kernel reference = mustFindMap(program, kDType<T>, true),
           kernel = mustFindMap(program, kDType<T>);
    for (size_t round = 0; round < 4; ++round) {
      const size_t count = counts[random() % counts.size()];
      const std::vector<Bytes> inputs = randomInputs<T>(program, count, seed);
      const std::vector<Bytes> expected = launchMap(reference, count, inputs, given);
      const std::string where = "seed " + std::to_string(seed) + ", count " + std::to_string(count);
      ASSERT_EQ(firstDifference<T>(launchMap(kernel, count, inputs, given), expected), "") << where;
      const std::vector<size_t> aliases = randomAliases(random, program);
      ASSERT_EQ(firstDifference<T>(launchMap(kernel, count, inputs, given, aliases), expected), "")
          << where << ", in place";
      ASSERT_EQ(firstDifference<T>(launchMap(reference, count, inputs, given, aliases), expected),
                "")
          << where << ", in place, reference";
      const size_t cut = random() % (count + 1);
      ASSERT_EQ(firstDifference<T>(launchMap(kernel, count, inputs, given, aliases, {cut},
                                             GuardedBytes::Place::AtStart),
                                   expected),
                "")
          << where << ", cut at " << cut;
    }
  }
}

TEST_P(MapTargetTest, RandomProgramsGiveTheSameBitsAsReferenceF32) {
  randomProgramsEqualReference<float>(1);
}
TEST_P(MapTargetTest, RandomProgramsGiveTheSameBitsAsReferenceF64) {
  randomProgramsEqualReference<double>(1000);
}

TEST_P(MapTargetTest, OutputsMaySwapInputs) {
  Builder builder;
  const uint16_t a = builder.input(), b = builder.input(), c = builder.input();
  builder.output(b).output(c).output(a);
  const size_t count = 2051;
  const std::vector<Bytes> inputs = randomInputs<float>(builder.program, count, 1);
  Kernel kernel = mustFindMap(builder.program, DType::F32);
  auto expected = launchMap(mustFindMap(builder.program, DType::F32, true), count, inputs, {});
  EXPECT_EQ(firstDifference<float>(launchMap(kernel, count, inputs, {}, {0, 1, 2}), expected), "");
}

/// All values live at once: the smallest tiles.
TEST_P(MapTargetTest, ManyLiveValues) {
  for (DType dtype : {DType::F32, DType::F64}) {
    Builder builder;
    std::vector<uint16_t> values = {builder.input()};
    while (builder.program.code.size() < 128)
      values.push_back(builder.add(MapOp::Add, values.back(), values[0]));
    uint16_t sum = values.back();
    for (size_t k = values.size() - 1; k-- > 0;)
      sum = builder.add(MapOp::Sub, values[k], sum);
    builder.output(sum);
    ASSERT_EQ(validateMap(builder.program), "");
    const size_t count = 1003;
    const std::vector<Bytes> inputs = dtype == DType::F32
                                          ? randomInputs<float>(builder.program, count, 1)
                                          : randomInputs<double>(builder.program, count, 1);
    EXPECT_EQ(firstDifference<float>(
                  launchMap(mustFindMap(builder.program, dtype), count, inputs, {}),
                  launchMap(mustFindMap(builder.program, dtype, true), count, inputs, {})),
              "");
  }
}

/// Adam's moments and weights, with an output that is another output's operand.
MapProgram adam() {
  Builder builder;
  const uint16_t m = builder.input(), v = builder.input(), w = builder.input(), g = builder.input();
  const uint16_t beta1 = builder.scalar(), beta2 = builder.scalar(), rate = builder.scalar();
  const uint16_t one = builder.constant(1), epsilon = builder.constant(1e-8);
  auto blend = [&](uint16_t beta, uint16_t old, uint16_t fresh) {
    const uint16_t rest = builder.add(MapOp::Sub, one, beta);
    const uint16_t kept = builder.add(MapOp::Mul, beta, old);
    return builder.add(MapOp::Add, kept, builder.add(MapOp::Mul, rest, fresh));
  };
  const uint16_t m1 = blend(beta1, m, g);
  const uint16_t v1 = blend(beta2, v, builder.add(MapOp::Mul, g, g));
  const uint16_t root = builder.add(MapOp::Sqrt, v1);
  const uint16_t ratio = builder.add(MapOp::Div, builder.add(MapOp::Mul, rate, m1),
                                     builder.add(MapOp::Add, root, epsilon));
  return builder.output(m1).output(v1).output(builder.add(MapOp::Sub, w, ratio)).program;
}

/// The first and the last elements of a launch that is large enough for streaming stores, outputs
/// `shift` bytes off their natural place.
TEST_P(MapTargetTest, LargeLaunchesGiveTheSameBits) {
  const MapProgram program = adam();
  const std::vector<double> scalars = {0.9, 0.999, 1e-3};
  const Kernel kernel = mustFindMap(program, DType::F32);
  const Kernel reference = mustFindMap(program, DType::F32, true);
  const size_t count = kLargeCount, head = 5003, tail = 2003;
  struct {
    size_t shift[3];
    bool inPlace;
  } const cases[] = {
      {{0, 0, 0}, false}, {{4, 4, 20}, false}, {{1, 0, 0}, false}, {{0, 0, 0}, true}};
  for (const auto &c : cases) {
    std::vector<std::unique_ptr<GuardedBytes>> memory;
    std::vector<std::span<const std::byte>> views;
    std::vector<Bytes> heads, tails;
    for (unsigned k = 0; k < 4; ++k) {
      heads.push_back(toBytes(randomValues<float>(head, k, Data::AnyBits)));
      tails.push_back(toBytes(randomValues<float>(tail, 10 + k, Data::Normal)));
      memory.push_back(std::make_unique<GuardedBytes>(count * sizeof(float)));
      auto bytes = memory.back()->bytes();
      std::copy(heads[k].begin(), heads[k].end(), bytes.begin());
      std::copy(tails[k].begin(), tails[k].end(),
                bytes.end() - static_cast<ptrdiff_t>(tails[k].size()));
      views.push_back(bytes);
    }
    std::vector<std::span<std::byte>> outputs;
    for (size_t k = 0; k < 3; ++k) {
      if (c.inPlace) {
        outputs.push_back(memory[k]->bytes());
        continue;
      }
      memory.push_back(std::make_unique<GuardedBytes>(count * sizeof(float) + c.shift[k]));
      outputs.push_back(memory.back()->bytes().first(count * sizeof(float)));
    }
    const Args args{views, outputs, scalars, count};
    kernel.run(kernel, args, count - tail, count);
    kernel.run(kernel, args, 0, head);
    auto expectedHead = launchMap(reference, head, heads, scalars);
    auto expectedTail = launchMap(reference, tail, tails, scalars);
    for (size_t k = 0; k < 3; ++k) {
      auto first = outputs[k].first(head * sizeof(float)),
           last = outputs[k].last(tail * sizeof(float));
      EXPECT_EQ(difference<float>(Bytes(first.begin(), first.end()), expectedHead[k]), "")
          << "output " << k << ", shift " << c.shift[k] << ", in place " << c.inPlace;
      EXPECT_EQ(difference<float>(Bytes(last.begin(), last.end()), expectedTail[k]), "")
          << "output " << k << ", shift " << c.shift[k] << ", in place " << c.inPlace;
      auto between = outputs[k].subspan(first.size(), 20000);
      EXPECT_TRUE(std::all_of(between.begin(), between.end(), [](std::byte byte) {
        return byte == std::byte{0};
      })) << "written between the pieces";
    }
  }
}

TEST_P(MapTargetTest, BuffersMayBeUnaligned) {
  const MapProgram program = adam();
  const std::vector<double> scalars = {0.9, 0.999, 1e-3};
  const size_t count = 1070;
  std::vector<Bytes> inputs = randomInputs<double>(program, count, 5);
  const Kernel kernel = mustFindMap(program, DType::F64);
  auto expected = launchMap(mustFindMap(program, DType::F64, true), count, inputs, scalars);
  std::vector<std::span<const std::byte>> views;
  for (Bytes &input : inputs) {
    input.insert(input.begin(), std::byte{1});
    views.push_back(std::span(input).subspan(1));
  }
  std::vector<Bytes> results(3, Bytes(count * sizeof(double) + 3));
  std::vector<std::span<std::byte>> outputs;
  for (Bytes &result : results)
    outputs.push_back(std::span(result).subspan(3));
  kernel.run(kernel, Args{views, outputs, scalars, count}, 0, count);
  for (size_t k = 0; k < 3; ++k)
    EXPECT_EQ(difference<double>(Bytes(outputs[k].begin(), outputs[k].end()), expected[k]), "");
}

/// Any bytes: what validateMap() accepts runs, inside its buffers, with the reference's result.
TEST_P(MapTargetTest, AnyBytesAreRefusedOrRun) {
  size_t accepted = 0, refused = 0;
  for (unsigned seed = 0; seed < 10'000; ++seed) {
    std::mt19937_64 random(seed);
    // Small numbers are likely, else nearly everything is refused for the first operand.
    auto number = [&](size_t likely) {
      return static_cast<uint16_t>(random() % 50 == 0 ? random() : random() % (likely + 1));
    };
    MapProgram program;
    program.inputs = number(4);
    program.scalars = number(2);
    program.constants.resize(number(2) % 300, 0.5);
    program.broadcast.resize(program.inputs % 40);
    for (uint8_t &flag : program.broadcast)
      flag = static_cast<uint8_t>(random() % 100 == 0 ? random() : random() % 2);
    const size_t count = 1 + random() % 8;
    for (size_t i = 0; i < count; ++i) {
      MapInstruction step;
      const uint8_t leaves = static_cast<uint8_t>(i < 3 ? 3 : kMapOpCount + 1);
      step.op = static_cast<MapOp>(random() % leaves);
      const bool leaf = static_cast<uint8_t>(step.op) < 3;
      step.a = number(leaf ? 1 : i), step.b = leaf ? 0 : number(i);
      step.c = random() % 4 == 0 ? number(i) : 0;
      if (random() % 3 == 0)
        step.b = 0;
      program.code.push_back(step);
    }
    program.outputs.resize(random() % 4);
    for (uint16_t &output : program.outputs)
      output = number(count);
    if (!validateMap(program).empty()) {
      ++refused;
      Kernel kernel;
      std::string error;
      ASSERT_EQ(findMap(share(program), DType::F32, kernel, error), FindError::BadAttribute);
      ASSERT_EQ(kernel.run, nullptr);
      continue;
    }
    ++accepted;
    const std::vector<double> scalars(program.scalars, 0.3);
    const std::vector<Bytes> inputs = randomInputs<float>(program, 37, seed);
    ASSERT_EQ(firstDifference<float>(
                  launchMap(mustFindMap(program, DType::F32), 37, inputs, scalars),
                  launchMap(mustFindMap(program, DType::F32, true), 37, inputs, scalars)),
              "")
        << "seed " << seed;
  }
  EXPECT_GT(accepted, 300u);
  EXPECT_GT(refused, 300u);
}

INSTANTIATE_TEST_SUITE_P(Targets, MapTargetTest,
                         testing::ValuesIn(supportedTargets().begin(), supportedTargets().end()),
                         targetTestName);

// --- Rules.

TEST(MapTest, SaysWhyItRefuses) {
  Builder good;
  const uint16_t x = good.input(), y = good.input(true), s = good.scalar(), k = good.constant(2);
  const uint16_t less = good.add(MapOp::Lt, x, y);
  const uint16_t sum = good.add(MapOp::Add, s, k);
  good.output(good.add(MapOp::Select, less, sum, x));
  ASSERT_EQ(validateMap(good.program), "");
  struct {
    void (*damage)(MapProgram &);
    const char *message;
  } const cases[] = {
      {[](MapProgram &p) { p.code.clear(); }, "expects at least 1 instruction, got 0"},
      {[](MapProgram &p) { p.code.resize(257); }, "expects at most 256 instructions, got 257"},
      {[](MapProgram &p) { p.inputs = 33; }, "expects at most 32 inputs, got 33"},
      {[](MapProgram &p) { p.scalars = 65; }, "expects at most 64 scalars, got 65"},
      {[](MapProgram &p) { p.constants.resize(257); }, "expects at most 256 constants, got 257"},
      {[](MapProgram &p) { p.outputs.clear(); }, "expects at least 1 output, got 0"},
      {[](MapProgram &p) { p.outputs.resize(17); }, "expects at most 16 outputs, got 17"},
      {[](MapProgram &p) { p.broadcast.pop_back(); },
       "expects a broadcast flag for each of 2 inputs, got 1"},
      {[](MapProgram &p) { p.broadcast[1] = 2; }, "broadcast flag 1 expects 0 or 1, got 2"},
      {[](MapProgram &p) { p.code[5].op = static_cast<MapOp>(24); },
       "instruction 5 expects an operation below 24, got 24"},
      {[](MapProgram &p) { p.code[1].a = 2; },
       "instruction 1 (input) expects an index below 2, got 2"},
      {[](MapProgram &p) { p.code[2].a = 1; },
       "instruction 2 (scalar) expects an index below 1, got 1"},
      {[](MapProgram &p) { p.code[3].a = 1; },
       "instruction 3 (constant) expects an index below 1, got 1"},
      {[](MapProgram &p) { p.code[0].b = 1; },
       "instruction 0 (input), operand 1, expects 0, for there is no such operand, got 1"},
      {[](MapProgram &p) { p.code[5].c = 1; },
       "instruction 5 (add), operand 2, expects 0, for there is no such operand, got 1"},
      {[](MapProgram &p) { p.code[5].b = 5; },
       "instruction 5 (add), operand 1, expects an earlier value, got 5"},
      {[](MapProgram &p) { p.code[5].b = 4; },
       "instruction 5 (add), operand 1, expects a number, got a boolean"},
      {[](MapProgram &p) { p.code[5] = {MapOp::Not, 3, 0, 0}; },
       "instruction 5 (not), operand 0, expects a boolean, got a number"},
      {[](MapProgram &p) { p.code[6].a = 0; },
       "instruction 6 (select), operand 0, expects a boolean, got a number"},
      {[](MapProgram &p) { p.code[6].c = 4; },
       "instruction 6 (select), operand 2, expects a number, got a boolean"},
      {[](MapProgram &p) { p.outputs[0] = 7; }, "output 0 expects a value below 7, got 7"},
      {[](MapProgram &p) { p.outputs[0] = 4; }, "output 0 expects a number, got a boolean"},
  };
  for (const auto &c : cases) {
    MapProgram program = good.program;
    c.damage(program);
    EXPECT_EQ(validateMap(program), c.message);
    Kernel kernel;
    std::string error;
    EXPECT_EQ(findMap(share(program), DType::F32, kernel, error), FindError::BadAttribute);
    EXPECT_EQ(error, std::string("kernel 'map': ") + c.message);
    EXPECT_EQ(kernel.run, nullptr);
  }
  Kernel kernel;
  std::string error;
  EXPECT_EQ(findMap(share(good.program), static_cast<DType>(9), kernel, error),
            FindError::UnsupportedDType);
  EXPECT_EQ(error, "kernel 'map' expects dtype f32 or f64, got an unknown one");
}

TEST(MapTest, KernelSaysWhatALaunchNeeds) {
  Builder builder;
  const uint16_t x = builder.input(), y = builder.input(true), s = builder.scalar();
  builder.output(builder.add(MapOp::Fma, x, y, s)).output(x);
  for (bool reference : {true, false}) {
    const Kernel kernel = mustFindMap(builder.program, DType::F64, reference);
    EXPECT_EQ(kernel.inputsMin, 2u);
    EXPECT_EQ(kernel.inputsMax, 2u);
    EXPECT_EQ(kernel.outputs, 2u);
    EXPECT_EQ(kernel.scalars, 1u);
    EXPECT_EQ(kernel.grain, 1u);
    EXPECT_EQ(kernel.inputBytes(10, 0), 80u);
    EXPECT_EQ(kernel.inputBytes(10, 1), 8u);
    EXPECT_EQ(kernel.outputBytes(10), 80u);
  }
}

} // namespace
} // namespace bagua::kernels
