// The figures of --explain. Formulas come from the bagua level, numbers from the chunk programs;
// where both say the same thing they are compared.
#include "bagua/compiler/Explain.h"

#include "bagua/compiler/ChunkMessages.h"
#include "bagua/compiler/Conditions.h"
#include "bagua/compiler/ExpandCollectives.h"
#include "bagua/compiler/Pipelines.h"
#include "bagua/compiler/ScalarEvaluator.h"
#include "bagua/dialect/Bagua/BaguaOps.h"
#include "bagua/dialect/Chunk/ChunkOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/Format.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace mlir;
namespace chunk = bagua::ir::chunk;

namespace bagua::compiler {
namespace {

// ---- Formulas -----------------------------------------------------------------------------------

using ir::Group;

constexpr Group kGroups[] = {Group::World, Group::Node, Group::Cross};

/// The letter of a group's size in formulas.
const char *sizeName(Group group) {
  return group == Group::World ? "n" : group == Group::Node ? "s" : "k";
}

/// a*n*n + b*n + c in the size n of a group.
struct Polynomial {
  int64_t a = 0, b = 0, c = 0;

  Polynomial operator+(Polynomial other) const { return {a + other.a, b + other.b, c + other.c}; }
  bool isZero() const { return a == 0 && b == 0 && c == 0; }

  /// "" for 1, else a factor with its "*".
  std::string factor(const std::string &n = "n") const {
    std::string text;
    auto term = [&](int64_t factor, const std::string &power) {
      if (factor == 0)
        return;
      text += text.empty() ? (factor < 0 ? "-" : "") : (factor < 0 ? " - " : " + ");
      int64_t size = std::abs(factor);
      if (size != 1 || power.empty())
        text += std::to_string(size) + (power.empty() ? "" : "*");
      text += power;
    };
    if (a + b + c == 0 && !isZero()) { // (n - 1) * (a*n - c): nothing travels in a world of one.
      Polynomial rest{0, a, -c};
      return (rest.a == 0 && rest.b == 0 && rest.c == 1 ? "" : rest.factor(n)) + "(" + n + " - 1)*";
    }
    if (a == 0 && b == 0 && c == 1)
      return "";
    term(a, n + "^2");
    term(b, n);
    term(c, "");
    bool sum = (a != 0) + (b != 0) + (c != 0) > 1;
    return (sum ? "(" + text + ")" : text) + "*";
  }
};

/// Bytes on the wire of one handler: factors of the packed bytes of a bucket and of shards.
struct WireFormula {
  /// What moves within a group: times bytes of L elements, of those of this rank's shard in the
  /// group, and of its shard in the group across (of the node if this one is across the nodes).
  struct Factors {
    Polynomial bucket, shard, across;
  };
  /// By codec (null: plain), in the order of first use.
  struct Term {
    ir::CodecAttrInterface codec;
    Factors factors[std::size(kGroups)];
  };
  SmallVector<Term> terms;

  Factors &of(ir::CodecAttrInterface codec, Group group) {
    auto index = static_cast<size_t>(group);
    for (Term &term : terms)
      if (term.codec == codec)
        return term.factors[index];
    return terms.emplace_back(Term{codec, {}}).factors[index];
  }

  std::string name(size_t index) const {
    if (!terms[index].codec)
      return "B";
    return terms.size() == 1 || (terms.size() == 2 && !terms[1 - index].codec)
               ? "P"
               : "P" + std::to_string(index + 1);
  }

  std::string perRank() const {
    std::string text;
    for (size_t i = 0; i < terms.size(); ++i)
      for (Group group : kGroups) {
        const Factors &factors = terms[i].factors[static_cast<size_t>(group)];
        for (auto [factor, argument] : {std::pair(factors.bucket, "(L)"),
                                        {factors.shard, shardName(group)},
                                        {factors.across, shardName(across(group))}})
          if (!factor.isZero())
            text +=
                (text.empty() ? "" : " + ") + factor.factor(sizeName(group)) + name(i) + argument;
      }
    return text.empty() ? "0" : text;
  }

  /// Shards of a group add up to the bucket, in bytes too; of node and cross there are as many
  /// groups as the other one has ranks.
  std::string total() const {
    std::string text;
    auto add = [&](const Polynomial &factor, Group group, const std::string &groups, size_t i) {
      if (!factor.isZero())
        text +=
            (text.empty() ? "" : " + ") + factor.factor(sizeName(group)) + groups + name(i) + "(L)";
    };
    for (size_t i = 0; i < terms.size(); ++i)
      for (Group group : kGroups) {
        const Factors &factors = terms[i].factors[static_cast<size_t>(group)];
        std::string groups =
            group == Group::World ? "" : std::string(sizeName(across(group))) + "*";
        add(Polynomial{factors.bucket.b, factors.bucket.c, 0} + factors.shard, group, groups, i);
        // This rank's shard across is that of its whole group, and as many as it has ranks.
        add(factors.across, group, std::string(sizeName(group)) + "*", i);
      }
    return text.empty() ? "0" : text;
  }

  static Group across(Group group) { return group == Group::Node ? Group::Cross : Group::Node; }
  static const char *shardName(Group group) {
    return group == Group::World ? "(S_r)" : group == Group::Node ? "(N_r)" : "(C_r)";
  }
};

ir::CodecAttrInterface codecOf(Type type) {
  if (auto per = dyn_cast<ir::PerType>(type))
    type = per.getElement();
  auto packed = dyn_cast<ir::PackedType>(type);
  return packed ? packed.getCodec() : ir::CodecAttrInterface();
}

struct HandlerFormula {
  WireFormula wire;
  std::array<int64_t, std::size(kGroups)> rounds{}; ///< By group.
  /// By group: in sizes up to this there are neighbours that coincide.
  std::array<int64_t, std::size(kGroups)> mergesBelow{};
  bool conditional = false; ///< Some of it stands in branches.
  bool scalars = false;     ///< Single numbers travel, too.
  /// By group: to as many neighbours as its size has bits.
  std::array<bool, std::size(kGroups)> exponential{};

  int64_t &roundsIn(Group group) { return rounds[static_cast<size_t>(group)]; }
  bool usesGroups() const { return rounds[1] + rounds[2] > 0; }
};

void addCommunication(Operation &op, HandlerFormula &formula) {
  if (auto move = dyn_cast<ir::AllToAllOp>(op)) {
    Group group = ir::groupOf(move.getGroupAttr());
    WireFormula::Factors &term = formula.wire.of(codecOf(move.getInput().getType()), group);
    if (cast<ir::PerType>(move.getInput().getType()).getOwn()) {
      term.shard = term.shard + Polynomial{0, 1, -1};
    } else {
      term.bucket = term.bucket + Polynomial{0, 0, 1};
      term.shard = term.shard + Polynomial{0, 0, -1};
    }
    ++formula.roundsIn(group);
  } else if (auto gather = dyn_cast<ir::AllGatherOp>(op)) {
    Type type = gather.getInput().getType();
    Group group = ir::groupOf(gather.getGroupAttr());
    ++formula.roundsIn(group);
    if (ir::isScalar(type)) {
      formula.scalars = true;
      return;
    }
    WireFormula::Factors &term = formula.wire.of(codecOf(type), group);
    FlatSymbolRefAttr shard = ir::shardGroup(ir::unpacked(type));
    Polynomial &factor = !shard                        ? term.bucket
                         : ir::groupOf(shard) == group ? term.shard
                                                       : term.across;
    factor = factor + Polynomial{0, 1, -1};
  } else if (auto exchange = dyn_cast<ir::NeighborExchangeOp>(op)) {
    ir::TopologyAttrInterface topology = exchange.getTopology();
    Group group = topology.getGroup();
    ++formula.roundsIn(group);
    formula.conditional |= !topology.isStatic(); // Some have no partner in some rounds.
    if (ir::isScalar(exchange.getInput().getType())) {
      formula.scalars = true;
      return;
    }
    Type type = exchange.getInput().getType();
    WireFormula::Factors &term = formula.wire.of(codecOf(type), group);
    if (isa<ir::ExponentialAttr>(topology.amongAll())) {
      formula.exponential[static_cast<size_t>(group)] = true;
      return;
    }
    Polynomial &factor = ir::shardGroup(ir::unpacked(type)) ? term.across : term.bucket;
    factor = factor + Polynomial{0, 0, topology.entriesMax()};
    int64_t low = 0, high = 0;
    if (auto fixed = dyn_cast<ir::TopologyAttr>(topology.amongAll())) {
      low = std::min<int64_t>(0, llvm::min_element(fixed.getOffsets())[0]);
      high = std::max<int64_t>(0, llvm::max_element(fixed.getOffsets())[0]);
    } else if (auto torus = dyn_cast<ir::TorusAttr>(topology.amongAll())) {
      high = 2 * torus.getColumns();
    }
    int64_t &merges = formula.mergesBelow[static_cast<size_t>(group)];
    merges = std::max(merges, high - low);
  }
}

void addCommunication(Block &block, HandlerFormula &formula) {
  for (Operation &op : block) {
    auto branch = dyn_cast<scf::IfOp>(op);
    if (!branch) {
      addCommunication(op, formula);
      continue;
    }
    // Of the two paths, the one of a world of one rank sends nothing.
    bool many = impliesMany(branch.getCondition(), /*holds=*/true, Group::World);
    bool alone = impliesMany(branch.getCondition(), /*holds=*/false, Group::World);
    auto add = [&](Block &taken, bool holds) {
      auto before = formula.rounds;
      addCommunication(taken, formula);
      for (Group group : kGroups) // Groups of one rank send nothing anyway.
        formula.conditional |= !many && !alone &&
                               formula.roundsIn(group) != before[static_cast<size_t>(group)] &&
                               !impliesMany(branch.getCondition(), holds, group);
    };
    if (!alone)
      add(*branch.thenBlock(), true);
    if (!many && branch.elseBlock())
      add(*branch.elseBlock(), false);
  }
}

HandlerFormula formulaOf(ir::OnOp on) {
  HandlerFormula formula;
  addCommunication(on.getBody().front(), formula);
  return formula;
}

// ---- Numbers ------------------------------------------------------------------------------------

/// Walks one chunk program as one rank and adds up what it costs.
class ProgramCost {
public:
  int64_t rounds = 0, wireBytes = 0, touchedBytes = 0;

  ProgramCost(const ExplainOptions &options, int64_t rank, int64_t step)
      : options_(options), rank_(rank), step_(step) {}

  LogicalResult run(Block &block) {
    for (Operation &op : block)
      if (failed(run(op)))
        return failure();
    return success();
  }

private:
  const ExplainOptions &options_;
  int64_t rank_, step_;
  ScalarEvaluator scalars_;

  int64_t localSize() const { return options_.world / options_.nodes; }

  LogicalResult run(Operation &op) {
    if (ScalarEvaluator::isArithmetic(&op))
      return scalars_.evaluate(&op);
    if (isa<chunk::WorldOp>(op))
      scalars_.bind(op.getResult(0), options_.world);
    else if (isa<chunk::NodesOp>(op))
      scalars_.bind(op.getResult(0), options_.nodes);
    else if (isa<chunk::LocalSizeOp>(op))
      scalars_.bind(op.getResult(0), localSize());
    else if (isa<chunk::LocalRankOp>(op))
      scalars_.bind(op.getResult(0), rank_ % localSize());
    else if (isa<chunk::NodeOp>(op))
      scalars_.bind(op.getResult(0), rank_ / localSize());
    else if (isa<chunk::LengthOp>(op))
      scalars_.bind(op.getResult(0), options_.length);
    else if (isa<chunk::ElementBytesOp>(op))
      scalars_.bind(op.getResult(0), static_cast<int64_t>(kernels::elementBytes(options_.dtype)));
    else if (isa<chunk::RankOp>(op))
      scalars_.bind(op.getResult(0), rank_);
    else if (isa<chunk::StepOp>(op))
      scalars_.bind(op.getResult(0), step_);
    else if (isa<chunk::BucketOp>(op))
      scalars_.bind(op.getResult(0), int64_t{0});
    else if (auto parameter = dyn_cast<chunk::ParameterOp>(op)) {
      auto schedule = op.getParentOfType<chunk::ScheduleOp>();
      auto declared =
          schedule.lookupSymbol<chunk::DeclareParameterOp>(parameter.getParameterAttr());
      if (auto real = dyn_cast<FloatAttr>(declared.getDefaultValue()))
        scalars_.bind(op.getResult(0), Scalar::ofReal(real.getValueAsDouble()));
      else
        scalars_.bind(op.getResult(0), cast<IntegerAttr>(declared.getDefaultValue()).getInt());
    } else if (auto peer = dyn_cast<chunk::PeerOp>(op)) {
      SmallVector<int64_t> arguments;
      for (Value argument : peer.getArguments()) {
        FailureOr<int64_t> value = scalars_.tryInteger(argument);
        if (failed(value))
          return failure();
        arguments.push_back(*value);
      }
      scalars_.bind(op.getResult(0),
                    peerOf(peer.getMap(), arguments, options_.world, localSize(), rank_));
    } else if (auto finite = dyn_cast<chunk::IfFiniteOp>(op)) {
      return run(finite.getBody().front());
    } else if (auto forall = dyn_cast<chunk::ForallOp>(op)) {
      scalars_.bind(forall.getRank(), rank_);
      return run(forall.getBody().front());
    } else if (auto loop = dyn_cast<chunk::ForOp>(op)) {
      FailureOr<int64_t> lower = scalars_.tryInteger(loop.getLower());
      FailureOr<int64_t> upper = scalars_.tryInteger(loop.getUpper());
      if (failed(lower) || failed(upper))
        return failure();
      for (int64_t i = *lower; i < *upper; ++i) {
        scalars_.bind(loop.getVariable(), i);
        if (failed(run(loop.getBody().front())))
          return failure();
      }
    } else if (auto branch = dyn_cast<chunk::IfOp>(op)) {
      FailureOr<int64_t> condition = scalars_.tryInteger(branch.getCondition());
      if (failed(condition))
        return failure();
      Region &taken = *condition ? branch.getThen() : branch.getOtherwise();
      return taken.empty() ? success() : run(taken.front());
    } else if (auto launch = dyn_cast<chunk::LaunchOp>(op)) {
      for (Value operand : launch.getInputs())
        if (failed(touch(operand)))
          return failure();
      for (Value operand : launch.getOutputs())
        if (failed(touch(operand)))
          return failure();
    } else if (auto cost = dyn_cast<chunk::CostOp>(op)) {
      FailureOr<int64_t> costRounds = scalars_.tryInteger(cost.getRounds());
      FailureOr<int64_t> costBytes = scalars_.tryInteger(cost.getWireBytes());
      if (failed(costRounds) || failed(costBytes))
        return failure();
      rounds = *costRounds;
      wireBytes = *costBytes;
    }
    return success();
  }

  LogicalResult touch(Value operand) {
    Operation *op = operand.getDefiningOp();
    Value bytes;
    if (auto range = dyn_cast<chunk::RangeOp>(op))
      bytes = range.getBytes();
    else if (auto view = dyn_cast<chunk::ViewOp>(op))
      bytes = view.getBytes();
    if (bytes) {
      FailureOr<int64_t> size = scalars_.tryInteger(bytes);
      if (failed(size))
        return failure();
      touchedBytes += *size;
      return success();
    }
    auto gather = cast<chunk::GatherOp>(op);
    FailureOr<int64_t> lower = scalars_.tryInteger(gather.getLower());
    FailureOr<int64_t> upper = scalars_.tryInteger(gather.getUpper());
    if (failed(lower) || failed(upper))
      return failure();
    for (int64_t i = *lower; i < *upper; ++i) {
      scalars_.bind(gather.getVariable(), i);
      if (failed(run(gather.getBody().front())))
        return failure();
      chunk::YieldOp yield = gather.getYield();
      for (auto [j, range] : llvm::enumerate(yield.getRanges())) {
        if (!yield.getConditions().empty()) {
          FailureOr<int64_t> condition = scalars_.tryInteger(yield.getConditions()[j]);
          if (failed(condition))
            return failure();
          if (!*condition)
            continue;
        }
        if (failed(touch(range)))
          return failure();
      }
    }
    return success();
  }
};

// ---- Remarks ------------------------------------------------------------------------------------

struct Notes {
  std::vector<std::string> fused, missed;
};

struct RemarkCollector final : remark::detail::MLIRRemarkStreamerBase {
  explicit RemarkCollector(Notes &notes) : notes(notes) {}
  void streamOptimizationRemark(const remark::detail::Remark &remark) override {
    std::string text;
    llvm::raw_string_ostream os(text);
    if (auto file = dyn_cast<FileLineColLoc>(remark.getLocation()))
      os << file.getLine() << ":" << file.getColumn() << "  ";
    os << remark.getRemarkName() << ": ";
    for (const remark::detail::Remark::Arg &argument : remark.getArgs())
      os << argument.val;
    std::vector<std::string> &list =
        remark.getRemarkType() == llvm::remarks::Type::Passed ? notes.fused : notes.missed;
    if (!llvm::is_contained(list, text))
      list.push_back(text);
  }
  Notes &notes;
};

// ---- Printing -----------------------------------------------------------------------------------

class Explainer {
public:
  Explainer(const ExplainOptions &options, raw_ostream &os) : options_(options), os_(os) {}

  LogicalResult algorithm(ir::AlgorithmOp original, chunk::ScheduleOp schedule) {
    os_ << "algorithm " << original.getSymName() << ": grain " << schedule.getGrain()
        << (schedule.getGrain() == 1 ? " element" : " elements") << ", buckets of ";
    llvm::interleaveComma(schedule.getDtypes().getAsValueRange<TypeAttr>(), os_);
    os_ << "\n";
    bool accepted = llvm::any_of(schedule.getDtypes().getAsValueRange<TypeAttr>(), [&](Type type) {
      return type.isF32() == (options_.dtype == kernels::DType::F32);
    });
    for (auto [on, program] : llvm::zip(original.getBody().getOps<ir::OnOp>(),
                                        schedule.getBody().getOps<chunk::ProgramOp>()))
      if (failed(handler(on, program, accepted)))
        return failure();
    return success();
  }

private:
  const ExplainOptions &options_;
  raw_ostream &os_;

  LogicalResult handler(ir::OnOp on, chunk::ProgramOp program, bool accepted) {
    HandlerFormula formula = formulaOf(on);
    os_ << "  on " << ir::stringifyEvent(on.getEvent());
    if (on.isAsync())
      rounds(on);
    os_ << "\n";
    os_ << "    rounds                 ";
    std::string counts;
    for (Group group : kGroups)
      if (int64_t count = formula.roundsIn(group))
        counts += (counts.empty() ? "" : ", and ") + std::to_string(count) + " if " +
                  sizeName(group) + " > 1" + (formula.usesGroups() ? "" : ", else 0");
    os_ << (counts.empty() ? "0" : counts) << "\n";
    os_ << "    wire bytes of rank r   " << formula.wire.perRank() << "\n";
    os_ << "    wire bytes, all ranks  " << formula.wire.total() << "\n";
    for (Group group : kGroups) {
      if (int64_t merges = formula.mergesBelow[static_cast<size_t>(group)])
        os_ << "                           for " << sizeName(group) << " > " << merges
            << "; in smaller " << (group == Group::World ? "worlds" : "groups")
            << " neighbours coincide and send once\n";
      if (formula.exponential[static_cast<size_t>(group)])
        os_ << "                           and to each of ceil(log2 " << sizeName(group)
            << ") neighbours what is exchanged\n";
    }
    if (formula.scalars)
      os_ << "                           and an element for each number that is exchanged\n";
    if (formula.conditional)
      os_ << "                           where every branch with communication is taken, and every "
             "rank has a partner\n";
    if (!formula.wire.terms.empty()) {
      os_ << "      n: world, L: elements of the bucket, S_r: elements of shard r";
      if (formula.usesGroups())
        os_ << "\n      s: ranks of a node, k: nodes, N_r, C_r: elements of r's shard of @node, of "
               "@cross";
      for (auto [i, term] : llvm::enumerate(formula.wire.terms))
        os_ << "\n      " << formula.wire.name(i) << "(x) = "
            << (term.codec ? term.codec.packedBytesFormula("x") : "x * bytes per element");
      os_ << "\n";
    }
    if (!accepted) {
      os_ << "    (no figures: the algorithm does not take buckets of this type)\n";
      return success();
    }
    return figures(program);
  }

  /// When the rounds of an async handler begin, and when they are added.
  void rounds(ir::OnOp on) {
    auto count = [&](Value parameter, std::optional<int64_t> number) {
      if (!parameter)
        return std::to_string(number.value_or(0));
      auto found = on->getParentOfType<ir::AlgorithmOp>().getParameter(parameter);
      return found->name.str() + " (" + std::to_string(cast<IntegerAttr>(found->initial).getInt()) +
             ")";
    };
    os_ << ", a round every " << count(on.getEvery(), on.getEveryNumber()) << " "
        << ir::stringifyIntervalUnit(*on.getEveryUnit());
    if (on.getAfter() || on.getAfterNumber().value_or(0) > 0)
      os_ << " after " << count(on.getAfter(), on.getAfterNumber()) << " steps";
    os_ << ", added " << (*on.getEveryUnit() == ir::IntervalUnit::Steps ? "" : "at the latest ")
        << *on.getStaleness() << (*on.getStaleness() == 1 ? " step" : " steps")
        << " later; figures are of a round";
  }

  /// Whole numbers as such: means over steps may not be.
  static std::string number(double value) {
    std::string text;
    llvm::raw_string_ostream os(text);
    if (std::abs(value - std::round(value)) < 1e-9 * std::max(1.0, value)) // Sums of thousandths.
      os << static_cast<int64_t>(std::round(value));
    else
      os << llvm::format("%.3f", value);
    return text;
  }

  LogicalResult figures(chunk::ProgramOp program) {
    // A program that changes from step to step: the mean over some.
    bool changes =
        program.walk([](chunk::StepOp) { return WalkResult::interrupt(); }).wasInterrupted();
    constexpr int64_t kSteps = 1000, kWalksMax = 16000;
    int64_t steps = changes ? std::clamp<int64_t>(kWalksMax / options_.world, 1, kSteps) : 1;
    double least = 0, most = 0, sum = 0, rounds = 0, touched = 0;
    for (int64_t rank = 0; rank < options_.world; ++rank) {
      double wire = 0;
      for (int64_t step = 0; step < steps; ++step) {
        ProgramCost cost(options_, rank, step);
        if (failed(cost.run(program.getBody().front())))
          return failure();
        wire += static_cast<double>(cost.wireBytes) / static_cast<double>(steps);
        touched += static_cast<double>(cost.touchedBytes) / static_cast<double>(steps);
        if (rank == 0)
          rounds += static_cast<double>(cost.rounds) / static_cast<double>(steps);
      }
      least = rank == 0 ? wire : std::min(least, wire);
      most = std::max(most, wire);
      sum += wire;
    }
    int64_t elementBytes = static_cast<int64_t>(kernels::elementBytes(options_.dtype));
    os_ << "    at n = " << options_.world;
    if (options_.nodes > 1)
      os_ << ", k = " << options_.nodes;
    os_ << ", L = " << options_.length << ", "
        << (options_.dtype == kernels::DType::F32 ? "f32" : "f64");
    if (changes)
      os_ << ", mean of " << (program.isAsync() ? "rounds" : "steps") << " 0 to " << steps - 1;
    os_ << ":\n      rounds " << number(rounds) << ", wire bytes of a rank " << number(least);
    if (most != least)
      os_ << " to " << number(most);
    os_ << ", all ranks " << number(sum) << "\n";
    if (options_.length == 0)
      return success();
    double elements = static_cast<double>(options_.world) * static_cast<double>(options_.length);
    os_ << "      wire bytes per element and rank "
        << llvm::format("%.3f", static_cast<double>(sum) / elements) << " (an element has "
        << elementBytes << "), bytes touched "
        << llvm::format("%.3f", static_cast<double>(touched) / elements) << "\n";
    return success();
  }
};

} // namespace

LogicalResult explain(ModuleOp module, const ExplainOptions &options, raw_ostream &os) {
  if (options.world < 1 || options.world > 65536)
    return module.emitError() << "expects --world in 1..65536, got " << options.world;
  if (options.nodes < 1 || options.world % options.nodes != 0)
    return module.emitError() << "expects --nodes that divide the " << options.world
                              << " ranks, got " << options.nodes;
  if (options.length < 0 || options.length > (int64_t{1} << 40))
    return module.emitError() << "expects --length in 0..2^40, got " << options.length;
  MLIRContext *context = module.getContext();
  OwningOpRef<ModuleOp> expanded = module.clone(), lowered = module.clone();

  PassManager toBagua(context);
  buildPipeline(toBagua, Level::Bagua);
  if (failed(toBagua.run(*expanded)) || failed(ir::linkCodecs(*expanded)))
    return failure();
  SmallVector<Operation *> collectives;
  expanded->walk([&](Operation *op) {
    if (isa<ir::AllReduceOp, ir::ReduceScatterOp>(op))
      collectives.push_back(op);
  });
  for (Operation *op : collectives) {
    if (auto reduce = dyn_cast<ir::AllReduceOp>(op))
      expandAllReduce(reduce);
    else
      expandReduceScatter(cast<ir::ReduceScatterOp>(op));
  }

  Notes notes;
  remark::RemarkCategories categories;
  categories.passed = categories.missed = "BaguaToChunk";
  if (failed(remark::enableOptimizationRemarks(*context, std::make_unique<RemarkCollector>(notes),
                                               std::make_unique<remark::RemarkEmittingPolicyAll>(),
                                               categories)))
    return failure();
  PassManager toChunk(context);
  buildPipeline(toChunk, Level::Chunk);
  LogicalResult result = toChunk.run(*lowered);
  context->setRemarkEngine(nullptr);
  if (failed(result))
    return failure();

  Explainer explainer(options, os);
  bool any = false;
  for (auto algorithm : expanded->getOps<ir::AlgorithmOp>()) {
    auto schedule = lowered->lookupSymbol<chunk::ScheduleOp>(algorithm.getSymName());
    any = true;
    if (failed(explainer.algorithm(algorithm, schedule)))
      return failure();
  }
  if (!any)
    return module.emitError("expects an algorithm (bagua.algorithm) to explain");
  for (auto [title, list] : {std::pair("fused", &notes.fused), {"not fused", &notes.missed}})
    if (!list->empty()) {
      os << title << " (line:column of the algorithm)\n";
      for (const std::string &note : *list)
        os << "  " << note << "\n";
    }
  return success();
}

} // namespace bagua::compiler
