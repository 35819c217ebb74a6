// Codecs written in bytecode: their rules, and kernels made of them.
#include "bagua/kernels/CodecProgram.h"

#include "Prepared.h"
#include "Runs.h"
#include "common/CodecWords.h"
#include "common/Map.h"

namespace bagua::kernels {
namespace {

/// "" or what is wrong with one of the four programs; `varying` inputs come first.
std::string checkPart(const char *name, const MapProgram &program, size_t varying, size_t broadcast,
                      size_t outputs, size_t instructionsMax) {
  const std::string who = std::string(name) + ": ";
  auto expects = [&](size_t expected, const char *what, size_t got) {
    return who + "expects " + std::to_string(expected) + " " + what + ", got " +
           std::to_string(got);
  };
  if (std::string wrong = validateMap(program); !wrong.empty())
    return who + wrong;
  if (program.code.size() > instructionsMax)
    return who + "expects at most " + std::to_string(instructionsMax) + " instructions, got " +
           std::to_string(program.code.size());
  if (program.scalars != 0)
    return expects(0, "scalars", program.scalars);
  if (program.inputs != varying + broadcast)
    return expects(varying + broadcast, "inputs", program.inputs);
  if (outputs != 0 && program.outputs.size() != outputs)
    return expects(outputs, "outputs", program.outputs.size());
  for (size_t k = 0; k < program.inputs; ++k)
    if ((program.broadcast[k] != 0) != (k >= varying))
      return who + "broadcast flag " + std::to_string(k) + " expects " +
             (k >= varying ? "1" : "0") + ", got " + std::to_string(program.broadcast[k]);
  return "";
}

std::string outside(const char *what, const char *range, size_t got) {
  return std::string(what) + " expects " + range + ", got " + std::to_string(got);
}

/// Input 0 is a word whose code lies above the least: unpacking need not extend signs.
MapProgram decodeFromWords(const CodecProgram &codec) {
  MapProgram program;
  program.inputs = codec.decode.inputs;
  program.broadcast = codec.decode.broadcast;
  program.constants = codec.decode.constants;
  program.constants.push_back(static_cast<double>(kCodeShift - codeRange(codec).lowest));
  const uint16_t shift = 2;
  program.code = {{MapOp::Input, 0, 0, 0},
                  {MapOp::Constant, static_cast<uint16_t>(program.constants.size() - 1), 0, 0}};
  for (MapInstruction step : codec.decode.code) {
    const int arity = mapArity(step.op);
    uint16_t *operands[] = {&step.a, &step.b, &step.c};
    for (int k = 0; k < arity; ++k)
      *operands[k] = static_cast<uint16_t>(*operands[k] + shift);
    if (step.op == MapOp::Input && step.a == 0)
      step = {MapOp::Sub, 0, 1, 0};
    program.code.push_back(step);
  }
  program.outputs = {static_cast<uint16_t>(codec.decode.outputs[0] + shift)};
  return program;
}

} // namespace

std::string validateCodec(const CodecProgram &program) {
  if (program.block < 8 || program.block > 65536 || program.block % 8 != 0)
    return outside("block", "a multiple of 8 in 8…65536", program.block);
  if (program.headerCount < 1 || program.headerCount > kCodecHeadersMax)
    return outside("header count", "1…4", program.headerCount);
  if (program.codeBits < 1 || program.codeBits > 16)
    return outside("code bits", "1…16", program.codeBits);
  if (std::string wrong = checkPart("stats", program.stats, 1, 0, 0, kMapInstructionsMax);
      !wrong.empty())
    return wrong;
  if (program.reductions.size() != program.stats.outputs.size())
    return "expects a reduction for each of " + std::to_string(program.stats.outputs.size()) +
           " outputs of stats, got " + std::to_string(program.reductions.size());
  for (size_t k = 0; k < program.reductions.size(); ++k)
    if (static_cast<uint8_t>(program.reductions[k]) >= kBlockReductionCount)
      return "reduction " + std::to_string(k) + " expects a number below " +
             std::to_string(kBlockReductionCount) + ", got " +
             std::to_string(static_cast<unsigned>(program.reductions[k]));
  if (std::string wrong = checkPart("headers", program.headers, program.reductions.size(), 0,
                                    program.headerCount, kMapInstructionsMax);
      !wrong.empty())
    return wrong;
  if (std::string wrong =
          checkPart("encode", program.encode, 1, program.headerCount, 1, kCodecInstructionsMax);
      !wrong.empty())
    return wrong;
  return checkPart("decode", program.decode, 1, program.headerCount, 1, kCodecInstructionsMax);
}

size_t codecPackedBytes(const CodecProgram &program, size_t count) {
  return codecPacking(program).bytes(count);
}

FindError findCodec(std::string_view name, std::shared_ptr<const CodecProgram> program, DType dtype,
                    Kernel &kernel, std::string &error, bool reference) {
  const CodecProgramRuns &runs = reference ? codecProgramReference() : codecProgramRuns();
  Kernel result;
  if (name == "codec_encode")
    result.run = runs.encode;
  else if (name == "codec_decode")
    result.run = runs.decode;
  else if (name == "codec_decode_reduce_sum")
    result.run = runs.decodeReduceSum;
  else if (name == "codec_decode_reduce_mean")
    result.run = runs.decodeReduceMean;
  else {
    error = "no kernel of a codec program is named '" + std::string(name) + "'";
    return FindError::UnknownName;
  }
  const std::string who = "kernel '" + std::string(name) + "'";
  if (dtype != DType::F32) {
    error = who + " expects dtype f32, got " + (dtype == DType::F64 ? "f64" : "an unknown one");
    return FindError::UnsupportedDType;
  }
  if (std::string wrong = validateCodec(*program); !wrong.empty()) {
    error = who + ": " + wrong;
    return FindError::BadAttribute;
  }
  auto prepared = std::make_shared<PreparedProgram>();
  if (!reference) {
    int64_t target = 0;
    if (FindError code = chooseTarget(target, error); code != FindError::None)
      return code;
    prepared->runs = &mapTileRuns(target, DType::F32);
    prepared->blocks = &blockRuns(target);
    prepared->decode = decodeFromWords(*program);
    // Readers of the others take one NaN for another.
    const MapNans decoded = name == "codec_decode" ? MapNans::Canonical : MapNans::AsTheyCome;
    auto plan = [&](const MapProgram &map, MapNans nans) {
      return planMap(map, *prepared->runs, sizeof(float), nans);
    };
    prepared->statsPlan = plan(program->stats, MapNans::AsTheyCome);
    prepared->encodePlan = plan(program->encode, MapNans::AsTheyCome);
    prepared->decodePlan = plan(prepared->decode, decoded);
  }
  result.packing = codecPacking(*program);
  result.grain = program->block;
  result.block = program->block;
  result.bits = program->codeBits;
  result.packedOutput = name == "codec_encode";
  result.packedInput = !result.packedOutput;
  result.inputsMax = name == "codec_encode" || name == "codec_decode" ? 1 : SIZE_MAX;
  prepared->codec = std::move(program);
  result.prepared = std::move(prepared);
  kernel = std::move(result);
  return FindError::None;
}

} // namespace bagua::kernels
