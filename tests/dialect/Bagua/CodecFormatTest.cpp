// A codec's attribute and its kernels agree: names, attributes, sizes, blocks and random scalars.
#include "bagua/dialect/Bagua/BaguaDialect.h"
#include "bagua/dialect/Bagua/BaguaTypes.h"
#include "bagua/kernels/Kernels.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include "gtest/gtest.h"

using namespace mlir;

namespace bagua::ir {
namespace {

const char *const kCodecs[] = {
    "identity",
    "f16",
    "bf16",
    "minmax<bits = 8, block = 2048>",
    "minmax<bits = 3, block = 24>",
    "minmax_reference<block = 1024>",
    "qsgd<levels = 1, block = 64>",
    "qsgd<levels = 2, block = 64, norm = l2>",
    "qsgd<levels = 3, block = 64>",
    "qsgd<levels = 4, block = 64>",
    "qsgd<levels = 127, block = 65536>",
    "ternary<block = 8>",
    "sign<block = 4096>",
    "topk<k = 1, block = 4096>",
    "topk<k = 7, block = 24>",
    "randk<k = 24, block = 24>",
    "randk<k = 5, block = 64, scaled = false>",
};

/// The value of constants, products, sums and quotients rounded up.
int64_t valueOf(Value value) {
  Operation *op = value.getDefiningOp();
  auto operand = [&](unsigned index) { return valueOf(op->getOperand(index)); };
  if (auto constant = dyn_cast<arith::ConstantIndexOp>(op))
    return constant.value();
  if (isa<arith::AddIOp>(op))
    return operand(0) + operand(1);
  if (isa<arith::MulIOp>(op))
    return operand(0) * operand(1);
  EXPECT_TRUE(isa<arith::CeilDivSIOp>(op)) << op->getName().getStringRef().str();
  return (operand(0) + operand(1) - 1) / operand(1);
}

class CodecFormatTest : public testing::TestWithParam<const char *> {
protected:
  CodecFormatTest() {
    context_.loadDialect<BaguaDialect, arith::ArithDialect>();
    std::string text = "#bagua.";
    text += GetParam();
    codec_ = dyn_cast_or_null<CodecAttrInterface>(parseAttribute(text, &context_));
    if (codec_)
      for (NamedAttribute named : codec_.getKernelAttributes())
        attributes_.push_back({std::string_view(named.getName().strref()),
                               cast<IntegerAttr>(named.getValue()).getInt()});
  }
  void SetUp() override { ASSERT_TRUE(codec_); }

  kernels::Kernel find(StringRef name) {
    kernels::Kernel kernel;
    std::string error;
    EXPECT_EQ(
        kernels::find(std::string_view(name), kernels::DType::F32, attributes_, kernel, error),
        kernels::FindError::None)
        << error;
    return kernel;
  }

  MLIRContext context_;
  CodecAttrInterface codec_;
  std::vector<kernels::Attribute> attributes_;
};

TEST_P(CodecFormatTest, SizesAreThoseOfTheKernels) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context_));
  OpBuilder builder = OpBuilder::atBlockBegin(module->getBody());
  kernels::Kernel kernel = find(codec_.getEncodeKernel());
  for (int64_t count : {0, 1, 7, 8, 23, 24, 25, 63, 64, 65, 4095, 4096, 4097, 100003}) {
    auto expected = static_cast<int64_t>(kernel.outputBytes(static_cast<size_t>(count)));
    EXPECT_EQ(codec_.packedBytes(count), expected) << count;
    Location loc = module->getLoc();
    Value length = arith::ConstantIndexOp::create(builder, loc, count);
    EXPECT_EQ(valueOf(codec_.buildPackedBytes(builder, loc, length)), expected) << count;
  }
}

TEST_P(CodecFormatTest, KernelsExistAndTakeItsScalars) {
  kernels::Kernel encode = find(codec_.getEncodeKernel());
  EXPECT_EQ(static_cast<int64_t>(encode.grain), codec_.getBlock());
  EXPECT_TRUE(encode.packedOutput);
  EXPECT_EQ(encode.scalars, codec_.isRandom() ? 6u : 0u);
  EXPECT_EQ(codec_.isDeterministic(), !codec_.isRandom());
  for (StringRef name : {codec_.getDecodeKernel(), codec_.getDecodeReduceKernel(ReduceKind::Sum),
                         codec_.getDecodeReduceKernel(ReduceKind::Mean)}) {
    kernels::Kernel decode = find(name);
    EXPECT_TRUE(decode.packedInput);
    EXPECT_EQ(decode.scalars, codec_.decodeIsRandom() ? 6u : 0u) << name.str();
  }
  EXPECT_TRUE(codec_.isRandom() || !codec_.decodeIsRandom());
  EXPECT_FALSE(codec_.acceptsF64()) << "sizes are those of f32";
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecFormatTest, testing::ValuesIn(kCodecs));

TEST(CodecFormulaTest, ReadsWell) {
  MLIRContext context;
  context.loadDialect<BaguaDialect>();
  auto formula = [&](StringRef codec) {
    return cast<CodecAttrInterface>(parseAttribute(codec, &context)).packedBytesFormula("x");
  };
  EXPECT_EQ(formula("#bagua.identity"), "4*x");
  EXPECT_EQ(formula("#bagua.bf16"), "2*x");
  EXPECT_EQ(formula("#bagua.minmax_reference<block = 64>"), "ceil(x/64)*8 + x");
  EXPECT_EQ(formula("#bagua.qsgd<levels = 7, block = 64>"), "ceil(x/64)*4 + ceil(4*x/8)");
  EXPECT_EQ(formula("#bagua.sign<block = 64>"), "ceil(x/64)*4 + ceil(x/8)");
  EXPECT_EQ(formula("#bagua.topk<k = 3, block = 64>"), "6*ceil(3*x/64)");
  EXPECT_EQ(formula("#bagua.randk<k = 1, block = 64>"), "4*ceil(x/64)");
}

} // namespace
} // namespace bagua::ir
