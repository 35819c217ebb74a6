// From a map's instructions to steps over tiles: what is evaluated once per launch, what is done in
// one sweep, which values share a slot.
#include "common/MapPlan.h"

#include "common/Map.h"

#include <algorithm>
#include <array>

namespace bagua::kernels {
namespace {

constexpr uint16_t kNone = UINT16_MAX;

MapTileOp tileOp(MapOp op) {
  static_assert(static_cast<int>(MapTileOp::Select) - static_cast<int>(MapTileOp::Add) ==
                static_cast<int>(MapOp::Select) - static_cast<int>(MapOp::Add));
  return static_cast<MapTileOp>(static_cast<int>(op) - static_cast<int>(MapOp::Add) +
                                static_cast<int>(MapTileOp::Add));
}

/// A step before its operands have numbers: they are values of the program.
struct Draft {
  MapTileOp op = MapTileOp::Copy;
  std::array<uint16_t, 4> operands{kNone, kNone, kNone, kNone};
  uint16_t value = kNone; ///< What it defines, or, where it only stores, reads.
  uint16_t output = kNone;
  /// Load: loads input `value` to a slot, before anything else. Store: writes `value`, which
  /// another step defines, to `output`, after everything else.
  enum class Kind : uint8_t { Compute, Load, Store } kind = Kind::Compute;
};

class Planner {
public:
  Planner(const MapProgram &program, const MapTileRuns &runs, MapNans nans)
      : program_(program), runs_(runs), nans_(nans) {}

  MapPlan plan(size_t elementBytes);

private:
  bool isInput(uint16_t value) const {
    return plan_.varying[value] != 0 && program_.code[value].op == MapOp::Input;
  }
  /// The product, or difference, `value` can be computed inside the step that uses it.
  bool fusible(uint16_t value, MapOp op) const {
    return plan_.varying[value] != 0 && program_.code[value].op == op && uses_[value] == 1;
  }
  void findNeeded();
  Draft draftOf(uint16_t value);
  void draftSteps();
  void assignSlots();
  uint16_t inputNumber(uint16_t value) const;
  uint16_t number(uint16_t value) const;

  const MapProgram &program_;
  const MapTileRuns &runs_;
  const MapNans nans_;
  MapPlan plan_;
  std::vector<uint16_t> uses_; ///< By needed instructions and by outputs.
  std::vector<uint8_t> fused_;
  std::vector<Draft> drafts_;
  std::vector<uint16_t> slotOf_, uniformOf_, inputOf_; ///< By value; kNone.
};

void Planner::findNeeded() {
  const size_t count = program_.code.size();
  uses_.assign(count, 0);
  plan_.varying.assign(count, 1);
  for (uint16_t output : program_.outputs)
    ++uses_[output];
  for (size_t i = count; i-- > 0;) {
    if (uses_[i] == 0)
      continue;
    const MapInstruction &step = program_.code[i];
    const uint16_t operands[] = {step.a, step.b, step.c};
    for (int k = 0; k < mapArity(step.op); ++k)
      ++uses_[operands[k]];
  }
  for (size_t i = 0; i < count; ++i) {
    const MapInstruction &step = program_.code[i];
    const uint16_t operands[] = {step.a, step.b, step.c};
    bool varies = step.op == MapOp::Input && program_.broadcast[step.a] == 0;
    for (int k = 0; k < mapArity(step.op); ++k)
      varies = varies || plan_.varying[operands[k]] != 0;
    plan_.varying[i] = varies || uses_[i] == 0;
  }
}

Draft Planner::draftOf(uint16_t value) {
  const MapInstruction &step = program_.code[value];
  Draft draft{tileOp(step.op), {kNone, kNone, kNone, kNone}, value};
  const uint16_t operands[] = {step.a, step.b, step.c};
  std::copy_n(operands, mapArity(step.op), draft.operands.begin());
  auto fuse = [&](uint16_t inner) { fused_[inner] = 1; };
  const uint16_t a = step.a, b = step.b;
  // What is fusible has one use, so it stands once among the operands.
  if (step.op == MapOp::Add) {
    for (auto [product, other] : {std::pair{a, b}, std::pair{b, a}}) {
      if (!fusible(product, MapOp::Mul))
        continue;
      const MapInstruction &mul = program_.code[product];
      fuse(product);
      for (auto [difference, factor] : {std::pair{mul.a, mul.b}, std::pair{mul.b, mul.a}})
        if (fusible(difference, MapOp::Sub)) {
          const MapInstruction &sub = program_.code[difference];
          fuse(difference);
          draft.op = MapTileOp::AddMulOfSub;
          draft.operands = {sub.a, sub.b, factor, other};
          return draft;
        }
      if (fusible(other, MapOp::Mul)) {
        fuse(other);
        draft.op = MapTileOp::MulAddMul;
        draft.operands = {mul.a, mul.b, program_.code[other].a, program_.code[other].b};
      } else {
        draft.op = MapTileOp::MulAdd;
        draft.operands = {mul.a, mul.b, other, kNone};
      }
      return draft;
    }
  } else if (step.op == MapOp::Sub) {
    const bool first = fusible(a, MapOp::Mul);
    if (first || fusible(b, MapOp::Mul)) {
      const uint16_t product = first ? a : b;
      fuse(product);
      draft.op = first ? MapTileOp::MulSub : MapTileOp::SubOfMul;
      draft.operands = {program_.code[product].a, program_.code[product].b, first ? b : a, kNone};
    }
  } else if (step.op == MapOp::Mul) {
    for (auto [difference, factor] : {std::pair{a, b}, std::pair{b, a}})
      if (fusible(difference, MapOp::Sub)) {
        fuse(difference);
        draft.op = MapTileOp::MulOfSub;
        draft.operands = {program_.code[difference].a, program_.code[difference].b, factor, kNone};
        return draft;
      }
  }
  return draft;
}

void Planner::draftSteps() {
  const size_t count = program_.code.size();
  fused_.assign(count, 0);
  // Backwards: whoever takes in an inner operation is drafted before it.
  for (size_t i = count; i-- > 0;)
    if (plan_.varying[i] != 0 && uses_[i] != 0 && fused_[i] == 0 &&
        program_.code[i].op != MapOp::Input)
      drafts_.push_back(draftOf(static_cast<uint16_t>(i)));
  std::reverse(drafts_.begin(), drafts_.end());

  // An output may be any input. So a value goes straight to its output only after the last step
  // that reads an input; others wait in slots until all steps are done.
  size_t lastReader = 0;
  for (size_t i = 0; i < drafts_.size(); ++i)
    for (uint16_t operand : drafts_[i].operands)
      if (operand != kNone && isInput(operand))
        lastReader = i;
  std::vector<Draft> loads, stores;
  for (size_t o = 0; o < program_.outputs.size(); ++o) {
    const uint16_t value = program_.outputs[o], output = static_cast<uint16_t>(o);
    for (size_t i = lastReader; i < drafts_.size(); ++i)
      if (drafts_[i].value == value && uses_[value] == 1)
        drafts_[i].output = output;
    if (std::any_of(drafts_.begin(), drafts_.end(),
                    [&](const Draft &draft) { return draft.output == output; }))
      continue;
    stores.push_back(
        {MapTileOp::Copy, {value, kNone, kNone, kNone}, value, output, Draft::Kind::Store});
    if (isInput(value) && program_.outputs.size() > 1 &&
        std::none_of(loads.begin(), loads.end(),
                     [&](const Draft &load) { return load.value == value; }))
      loads.push_back(
          {MapTileOp::Copy, {value, kNone, kNone, kNone}, value, kNone, Draft::Kind::Load});
  }
  drafts_.insert(drafts_.begin(), loads.begin(), loads.end());
  drafts_.insert(drafts_.end(), stores.begin(), stores.end());
}

/// Steps are in order, so a slot is free again after the last step that reads its value; that step
/// may write it, element by element.
void Planner::assignSlots() {
  const size_t count = program_.code.size();
  slotOf_.assign(count, kNone);
  std::vector<size_t> lastUse(count, 0);
  for (size_t i = 0; i < drafts_.size(); ++i)
    for (uint16_t operand : drafts_[i].operands)
      if (operand != kNone)
        lastUse[operand] = i;
  std::vector<uint16_t> free;
  std::vector<uint8_t> freed(count, 0); // An operand may stand twice in a step.
  for (size_t i = 0; i < drafts_.size(); ++i) {
    const Draft &draft = drafts_[i];
    for (uint16_t operand : draft.operands)
      if (operand != kNone && slotOf_[operand] != kNone && lastUse[operand] == i &&
          freed[operand] == 0) {
        free.push_back(slotOf_[operand]);
        freed[operand] = 1;
      }
    if (draft.output != kNone)
      continue;
    if (free.empty())
      free.push_back(static_cast<uint16_t>(plan_.slots++));
    slotOf_[draft.value] = free.back();
    free.pop_back();
  }
}

uint16_t Planner::inputNumber(uint16_t value) const {
  return static_cast<uint16_t>(plan_.firstInput() + inputOf_[value]);
}

uint16_t Planner::number(uint16_t value) const {
  if (value == kNone)
    return 0;
  if (plan_.varying[value] == 0)
    return uniformOf_[value];
  if (slotOf_[value] != kNone)
    return static_cast<uint16_t>(plan_.firstSlot() + slotOf_[value]);
  return inputNumber(value);
}

MapPlan Planner::plan(size_t elementBytes) {
  findNeeded();
  draftSteps();
  assignSlots();
  uniformOf_.assign(program_.code.size(), kNone);
  inputOf_.assign(program_.code.size(), kNone);
  for (const Draft &draft : drafts_)
    for (uint16_t operand : draft.operands) {
      if (operand == kNone)
        continue;
      if (plan_.varying[operand] == 0 && uniformOf_[operand] == kNone) {
        uniformOf_[operand] = static_cast<uint16_t>(plan_.uniforms.size());
        plan_.uniforms.push_back(operand);
      } else if (isInput(operand) && inputOf_[operand] == kNone) {
        const uint16_t input = program_.code[operand].a;
        auto found = std::find(plan_.inputs.begin(), plan_.inputs.end(), input);
        inputOf_[operand] = static_cast<uint16_t>(found - plan_.inputs.begin());
        if (found == plan_.inputs.end())
          plan_.inputs.push_back(input);
      }
    }
  plan_.outputs = program_.outputs.size();
  plan_.lanes = runs_.lanes;
  plan_.elementBytes = elementBytes;
  plan_.tile = kMapTileMax * sizeof(float) / elementBytes;
  if (plan_.slots != 0) {
    // Each slot is followed by a line, so that slots use different cache sets.
    const size_t bytes = kMapArenaBytes / plan_.slots / kMapVectorBytesMax * kMapVectorBytesMax;
    plan_.tile = std::min(plan_.tile, (bytes - kMapVectorBytesMax) / elementBytes);
  }
  for (const Draft &draft : drafts_) {
    MapStep step;
    const size_t op = static_cast<size_t>(draft.op);
    step.run = draft.output == kNone || nans_ == MapNans::AsTheyCome ? runs_.toSlot[op]
                                                                     : runs_.toOutput[op];
    step.a = draft.kind == Draft::Kind::Load ? inputNumber(draft.value) : number(draft.operands[0]);
    step.b = number(draft.operands[1]);
    step.c = number(draft.operands[2]);
    step.d = number(draft.operands[3]);
    step.y = draft.output == kNone ? number(draft.value)
                                   : static_cast<uint16_t>(plan_.firstOutput() + draft.output);
    plan_.steps.push_back(step);
  }
  return std::move(plan_);
}

} // namespace

MapPlan planMap(const MapProgram &program, const MapTileRuns &runs, size_t elementBytes,
                MapNans nans) {
  return Planner(program, runs, nans).plan(elementBytes);
}

} // namespace bagua::kernels
