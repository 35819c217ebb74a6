// Map bytecode: its rules, and kernels made of it.
#include "bagua/kernels/Map.h"

#include "Prepared.h"
#include "Runs.h"
#include "common/MapTiles.h"
#include "common/Sweep.h"

namespace bagua::kernels {
namespace {

constexpr const char *kOpNames[] = {"input", "scalar", "constant", "add",   "sub", "mul",
                                    "div",   "fma",    "sqrt",     "neg",   "abs", "sign",
                                    "min",   "max",    "rint",     "floor", "lt",  "le",
                                    "eq",    "ne",     "and",      "or",    "not", "select"};
static_assert(std::size(kOpNames) == kMapOpCount);

enum class Type : uint8_t { Number, Boolean };
const char *nameOf(Type type) { return type == Type::Number ? "a number" : "a boolean"; }

/// Of operand `k` of an operation other than `select`.
Type operandType(MapOp op) {
  return op == MapOp::And || op == MapOp::Or || op == MapOp::Not ? Type::Boolean : Type::Number;
}
Type resultType(MapOp op) {
  return op >= MapOp::Lt && op <= MapOp::Not ? Type::Boolean : Type::Number;
}

std::string atMost(const char *what, size_t limit, size_t got) {
  return std::string("expects at most ") + std::to_string(limit) + " " + what + ", got " +
         std::to_string(got);
}

/// "" or what is wrong with instruction `i`; sets its type.
std::string checkInstruction(const MapProgram &program, size_t i, std::vector<Type> &types) {
  const MapInstruction &step = program.code[i];
  const std::string who = "instruction " + std::to_string(i);
  if (static_cast<uint8_t>(step.op) >= kMapOpCount)
    return who + " expects an operation below " + std::to_string(kMapOpCount) + ", got " +
           std::to_string(static_cast<unsigned>(step.op));
  const std::string what = who + " (" + kOpNames[static_cast<size_t>(step.op)] + ")";
  const uint16_t operands[] = {step.a, step.b, step.c};
  const int arity = mapArity(step.op), fields = std::max(arity, 1);
  if (arity == 0) {
    const size_t count = step.op == MapOp::Input    ? program.inputs
                         : step.op == MapOp::Scalar ? program.scalars
                                                    : program.constants.size();
    if (step.a >= count)
      return what + " expects an index below " + std::to_string(count) + ", got " +
             std::to_string(step.a);
  }
  for (int k = 0; k < 3; ++k) {
    const std::string operand = what + ", operand " + std::to_string(k) + ", expects ";
    if (k >= fields && operands[k] != 0)
      return operand + "0, for there is no such operand, got " + std::to_string(operands[k]);
    if (k < arity && operands[k] >= i)
      return operand + "an earlier value, got " + std::to_string(operands[k]);
  }
  for (int k = 0; k < arity; ++k) {
    Type expected = operandType(step.op);
    if (step.op == MapOp::Select)
      expected = k == 0 ? Type::Boolean : types[step.b];
    if (types[operands[k]] != expected)
      return what + ", operand " + std::to_string(k) + ", expects " + nameOf(expected) + ", got " +
             nameOf(types[operands[k]]);
  }
  types[i] = step.op == MapOp::Select ? types[step.b] : resultType(step.op);
  return "";
}

template <typename T>
void runMap(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  if (begin >= end)
    return;
  const MapProgram &program = *kernel.prepared->map;
  const MapPlan &plan = kernel.prepared->plan;
  MapTiles<T> tiles(program, plan);
  tiles.setUniforms(args.scalars, [&](size_t k) { return loadOne<T>(args.inputs[k].data(), 0); });
  for (size_t k = 0; k < program.inputs; ++k)
    tiles.setInput(k, args.inputs[k].data());
  const bool large = args.count * sizeof(T) >= kStreamBytesMin;
  size_t head = 0; // Elements until outputs that are streamed are aligned.
  bool streaming = false;
  for (size_t k = 0; k < plan.outputs; ++k) {
    std::byte *y = args.outputs[k].data();
    bool stream = large && reinterpret_cast<uintptr_t>(y) % sizeof(T) == 0;
    for (auto input : args.inputs) // In place, the lines are in the cache already.
      stream = stream && input.data() != y;
    const size_t past = reinterpret_cast<uintptr_t>(y + begin * sizeof(T)) % kLineBytes;
    const size_t needed = (kLineBytes - past) % kLineBytes / sizeof(T);
    if (stream && !streaming)
      head = needed;
    stream = stream && head == needed;
    streaming = streaming || stream;
    tiles.setOutput(k, y, stream);
  }
  for (size_t done = 0; head - done != 0 && begin < end;) { // Less than a line.
    const size_t count = std::min({head - done, plan.lanes, end - begin});
    tiles.runPadded(begin, count);
    begin += count;
    done += count;
  }
  if (large)
    tiles.template run<true>(begin, end);
  else
    tiles.template run<false>(begin, end);
  if (streaming)
    hwy::FlushStream();
}

} // namespace

std::string validateMap(const MapProgram &program) {
  if (program.code.empty())
    return "expects at least 1 instruction, got 0";
  if (program.code.size() > kMapInstructionsMax)
    return atMost("instructions", kMapInstructionsMax, program.code.size());
  if (program.inputs > kMapInputsMax)
    return atMost("inputs", kMapInputsMax, program.inputs);
  if (program.scalars > kMapScalarsMax)
    return atMost("scalars", kMapScalarsMax, program.scalars);
  if (program.constants.size() > kMapConstantsMax)
    return atMost("constants", kMapConstantsMax, program.constants.size());
  if (program.outputs.empty())
    return "expects at least 1 output, got 0";
  if (program.outputs.size() > kMapOutputsMax)
    return atMost("outputs", kMapOutputsMax, program.outputs.size());
  if (program.broadcast.size() != program.inputs)
    return "expects a broadcast flag for each of " + std::to_string(program.inputs) +
           " inputs, got " + std::to_string(program.broadcast.size());
  for (size_t k = 0; k < program.broadcast.size(); ++k)
    if (program.broadcast[k] > 1)
      return "broadcast flag " + std::to_string(k) + " expects 0 or 1, got " +
             std::to_string(program.broadcast[k]);
  std::vector<Type> types(program.code.size(), Type::Number);
  for (size_t i = 0; i < program.code.size(); ++i)
    if (std::string wrong = checkInstruction(program, i, types); !wrong.empty())
      return wrong;
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const std::string who = "output " + std::to_string(k) + " expects ";
    if (program.outputs[k] >= program.code.size())
      return who + "a value below " + std::to_string(program.code.size()) + ", got " +
             std::to_string(program.outputs[k]);
    if (types[program.outputs[k]] != Type::Number)
      return who + "a number, got a boolean";
  }
  return "";
}

FindError findMap(std::shared_ptr<const MapProgram> program, DType dtype, Kernel &kernel,
                  std::string &error, bool reference) {
  if (dtype != DType::F32 && dtype != DType::F64) {
    error = "kernel 'map' expects dtype f32 or f64, got an unknown one";
    return FindError::UnsupportedDType;
  }
  if (std::string wrong = validateMap(*program); !wrong.empty()) {
    error = "kernel 'map': " + wrong;
    return FindError::BadAttribute;
  }
  auto prepared = std::make_shared<PreparedProgram>();
  Kernel result;
  if (reference) {
    result.run = mapReference(dtype);
  } else {
    int64_t target = 0;
    if (FindError code = chooseTarget(target, error); code != FindError::None)
      return code;
    prepared->plan = planMap(*program, mapTileRuns(target, dtype), elementBytes(dtype));
    result.run = dtype == DType::F32 ? runMap<float> : runMap<double>;
  }
  result.dtype = dtype;
  result.inputsMin = result.inputsMax = program->inputs;
  result.outputs = program->outputs.size();
  result.scalars = program->scalars;
  prepared->map = std::move(program);
  result.prepared = std::move(prepared);
  kernel = std::move(result);
  return FindError::None;
}

} // namespace bagua::kernels
