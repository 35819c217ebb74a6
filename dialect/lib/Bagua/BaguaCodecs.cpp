// The built-in codecs but minmax: their formats, attributes and constraints.
#include "bagua/dialect/Bagua/BaguaTypes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace bagua::ir;

using EmitError = function_ref<InFlightDiagnostic()>;

int64_t CodecFormat::packedBytes(int64_t count) const {
  return llvm::divideCeil(count, block) * headerBytes +
         llvm::divideCeil(count * units, elements) * unitBytes;
}

Value CodecFormat::buildPackedBytes(OpBuilder &builder, Location loc, Value count) const {
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };
  auto times = [&](Value value, int64_t factor) -> Value {
    return factor == 1 ? value
                       : arith::MulIOp::create(builder, loc, value, constant(factor)).getResult();
  };
  auto over = [&](Value value, int64_t divisor) -> Value {
    return divisor == 1
               ? value
               : arith::CeilDivSIOp::create(builder, loc, value, constant(divisor)).getResult();
  };
  Value bytes = times(over(times(count, units), elements), unitBytes);
  if (headerBytes == 0)
    return bytes;
  Value headers = times(over(count, block), headerBytes);
  return arith::AddIOp::create(builder, loc, headers, bytes);
}

std::string CodecFormat::formula(StringRef count) const {
  auto times = [](int64_t factor, std::string value) {
    return factor == 1 ? value : std::to_string(factor) + "*" + value;
  };
  std::string term = times(units, count.str());
  if (elements != 1)
    term = "ceil(" + term + "/" + std::to_string(elements) + ")";
  term = times(unitBytes, term);
  return headerBytes == 0 ? term
                          : "ceil(" + count.str() + "/" + std::to_string(block) + ")*" +
                                std::to_string(headerBytes) + " + " + term;
}

/// Codes of so many bits after a header.
static CodecFormat codes(int64_t block, int64_t headerBytes, int64_t bits) {
  if (bits == 8)
    return {block, headerBytes, 1, 1, 1};
  return {block, headerBytes, 1, bits, 8};
}

/// `k` entries of so many bytes for each block, a part of them for the last.
static CodecFormat entries(int64_t k, int64_t block, int64_t entryBytes) {
  return {block, 0, entryBytes, k, block};
}

using NamedNumber = std::pair<StringRef, int64_t>;

/// Sorted by name.
static DictionaryAttr numbers(MLIRContext *context, ArrayRef<NamedNumber> attributes) {
  Builder builder(context);
  SmallVector<NamedAttribute> named;
  for (auto [name, value] : attributes)
    named.push_back(builder.getNamedAttr(name, builder.getI64IntegerAttr(value)));
  return builder.getDictionaryAttr(named);
}

constexpr int64_t kBlockMin = 8, kBlockMax = 65536, kSparseBlockMax = 4096, kLevelsMax = 127;

static LogicalResult verifyBlock(EmitError emitError, int64_t block, int64_t most = kBlockMax) {
  if (block < kBlockMin || block > most || block % 8 != 0)
    return emitError() << "expects block to be a multiple of 8 in " << kBlockMin << ".." << most
                       << ", got " << block;
  return success();
}

static LogicalResult verifySparse(EmitError emitError, int64_t k, int64_t block) {
  if (failed(verifyBlock(emitError, block, kSparseBlockMax)))
    return failure();
  if (k < 1 || k > block)
    return emitError() << "expects k in 1.." << block << ", the block, got " << k;
  return success();
}

// ---- identity, f16, bf16 ------------------------------------------------------------------------

CodecFormat IdentityAttr::getFormat() const { return {1, 0, 4, 1, 1}; }
DictionaryAttr IdentityAttr::getKernelAttributes() const { return numbers(getContext(), {}); }

CodecFormat F16Attr::getFormat() const { return {1, 0, 2, 1, 1}; }
DictionaryAttr F16Attr::getKernelAttributes() const { return numbers(getContext(), {}); }

CodecFormat BF16Attr::getFormat() const { return {1, 0, 2, 1, 1}; }
DictionaryAttr BF16Attr::getKernelAttributes() const { return numbers(getContext(), {}); }

// ---- minmax_reference ---------------------------------------------------------------------------

LogicalResult MinMaxReferenceAttr::verify(EmitError emitError, int64_t block) {
  return verifyBlock(emitError, block); // minmax_reference_C1
}

CodecFormat MinMaxReferenceAttr::getFormat() const { return codes(getBlock(), 8, 8); }
DictionaryAttr MinMaxReferenceAttr::getKernelAttributes() const {
  return numbers(getContext(), {{"block", getBlock()}});
}

// ---- qsgd, ternary ------------------------------------------------------------------------------

LogicalResult QsgdAttr::verify(EmitError emitError, int64_t levels, int64_t block, Norm) {
  if (levels < 1 || levels > kLevelsMax) // qsgd_C1
    return emitError() << "expects levels in 1.." << kLevelsMax << ", got " << levels;
  return verifyBlock(emitError, block); // qsgd_C2
}

CodecFormat QsgdAttr::getFormat() const { // Codes 0 … 2 * levels.
  return codes(getBlock(), 4, llvm::Log2_64_Ceil(static_cast<uint64_t>(2 * getLevels() + 1)));
}
DictionaryAttr QsgdAttr::getKernelAttributes() const {
  return numbers(
      getContext(),
      {{"block", getBlock()}, {"levels", getLevels()}, {"norm", static_cast<int64_t>(getNorm())}});
}

LogicalResult TernaryAttr::verify(EmitError emitError, int64_t block) {
  return verifyBlock(emitError, block); // ternary_C1
}

CodecFormat TernaryAttr::getFormat() const { return codes(getBlock(), 4, 2); }
DictionaryAttr TernaryAttr::getKernelAttributes() const {
  return numbers(getContext(), {{"block", getBlock()}});
}

// ---- sign ---------------------------------------------------------------------------------------

LogicalResult SignAttr::verify(EmitError emitError, int64_t block) {
  return verifyBlock(emitError, block); // sign_C1
}

CodecFormat SignAttr::getFormat() const { return codes(getBlock(), 4, 1); }
DictionaryAttr SignAttr::getKernelAttributes() const {
  return numbers(getContext(), {{"block", getBlock()}});
}

// ---- topk, randk --------------------------------------------------------------------------------

LogicalResult TopKAttr::verify(EmitError emitError, int64_t k, int64_t block) {
  return verifySparse(emitError, k, block); // topk_C1, topk_C2
}

CodecFormat TopKAttr::getFormat() const { return entries(getK(), getBlock(), 6); }
DictionaryAttr TopKAttr::getKernelAttributes() const {
  return numbers(getContext(), {{"block", getBlock()}, {"k", getK()}});
}

LogicalResult RandKAttr::verify(EmitError emitError, int64_t k, int64_t block, bool) {
  return verifySparse(emitError, k, block); // randk_C1, randk_C2
}

CodecFormat RandKAttr::getFormat() const { return entries(getK(), getBlock(), 4); }
DictionaryAttr RandKAttr::getKernelAttributes() const {
  return numbers(getContext(),
                 {{"block", getBlock()}, {"k", getK()}, {"scaled", getScaled() ? 1 : 0}});
}
