// Built-in codecs but minmax. What they do to elements is in SPEC.md, "Codecs".
#ifndef BAGUA_CODECS
#define BAGUA_CODECS

/// A codec that says what its bytes look like; the rest of the interface follows. A block is read from the
/// parameter of this name; a codec without one sets `blockless`.
class Bagua_Codec<string name, string attrMnemonic, bit randomEncode = 0, bit randomDecode = 0,
                  bit closedUnderSum = 0, bit blockless = 0>
    : Bagua_Attr<name, attrMnemonic,
                 [DeclareAttrInterfaceMethods<Bagua_CodecAttrInterface, ["isRandom", "decodeIsRandom"]>]> {
  let extraClassDeclaration = [{
    /// Where the bytes of a block go.
    CodecFormat getFormat() const;
  }];
  let extraClassDefinition = !if(blockless, "int64_t $cppClass::getBlock() const { return 1; }\n", "") # [{
    int64_t $cppClass::packedBytes(int64_t count) const { return getFormat().packedBytes(count); }
    ::mlir::Value $cppClass::buildPackedBytes(::mlir::OpBuilder &builder, ::mlir::Location loc,
                                              ::mlir::Value count) const {
      return getFormat().buildPackedBytes(builder, loc, count);
    }
    std::string $cppClass::packedBytesFormula(::llvm::StringRef count) const {
      return getFormat().formula(count);
    }
    bool $cppClass::acceptsF64() const { return false; }
  }] # "bool $cppClass::isClosedUnderSum() const { return " # !if(closedUnderSum, "true", "false") # "; }\n"
     # "bool $cppClass::isDeterministic() const { return " # !if(randomEncode, "false", "true") # "; }\n"
     # "bool $cppClass::isRandom() const { return " # !if(randomEncode, "true", "false") # "; }\n"
     # "bool $cppClass::decodeIsRandom() const { return " # !if(randomDecode, "true", "false") # "; }\n"
     # "::llvm::StringRef $cppClass::getEncodeKernel() const { return \"" # attrMnemonic # "_encode\"; }\n"
     # "::llvm::StringRef $cppClass::getDecodeKernel() const { return \"" # attrMnemonic # "_decode\"; }\n"
     # "::llvm::StringRef $cppClass::getDecodeReduceKernel(::bagua::ir::ReduceKind kind) const {\n"
     # "  return kind == ::bagua::ir::ReduceKind::Mean ? \"" # attrMnemonic # "_decode_reduce_mean\"\n"
     # "                                               : \"" # attrMnemonic # "_decode_reduce_sum\";\n}\n";
}

def Bagua_IdentityAttr : Bagua_Codec<"Identity", "identity", 0, 0, /*closedUnderSum=*/1, /*blockless=*/1> {
  let summary = "Elements as they are";
}

def Bagua_F16Attr : Bagua_Codec<"F16", "f16", 0, 0, 0, /*blockless=*/1> {
  let summary = "Elements rounded to IEEE binary16, saturated";
}

def Bagua_BF16Attr : Bagua_Codec<"BF16", "bf16", 0, 0, 0, /*blockless=*/1> {
  let summary = "Elements rounded to bfloat16, saturated";
}

def Bagua_MinMaxReferenceAttr : Bagua_Codec<"MinMaxReference", "minmax_reference"> {
  let summary = "The reference system's 8-bit min-max formula, faults included";
  let parameters = (ins "int64_t":$block);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Bagua_Norm : Bagua_Enum<"Norm", "what bounds the magnitudes of a block", [
    I32EnumAttrCase<"Max", 0, "max">, I32EnumAttrCase<"L2", 2, "l2">]>;

def Bagua_QsgdAttr : Bagua_Codec<"Qsgd", "qsgd", /*randomEncode=*/1> {
  let summary = "Magnitudes rounded at random to levels of the block's norm: unbiased";
  let description = [{
    `levels` in 1..127 of each sign; `norm` is the largest magnitude, `max`, by default, or the paper's `l2`.

    Example: `#bagua.qsgd<levels = 7, block = 512>`
  }];
  let parameters = (ins "int64_t":$levels, "int64_t":$block,
                        DefaultValuedParameter<"::bagua::ir::Norm", "::bagua::ir::Norm::Max">:$norm);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Bagua_TernaryAttr : Bagua_Codec<"Ternary", "ternary", /*randomEncode=*/1> {
  let summary = "Minus, zero or plus the block's largest magnitude, drawn: unbiased";
  let parameters = (ins "int64_t":$block);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Bagua_SignAttr : Bagua_Codec<"Sign", "sign"> {
  let summary = "Signs, and each block's mean magnitude";
  let parameters = (ins "int64_t":$block);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Bagua_TopKAttr : Bagua_Codec<"TopK", "topk"> {
  let summary = "The k largest magnitudes of each block, with their places";
  let parameters = (ins "int64_t":$k, "int64_t":$block);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Bagua_RandKAttr
    : Bagua_Codec<"RandK", "randk", /*randomEncode=*/1, /*randomDecode=*/1, /*closedUnderSum=*/1> {
  let summary = "k elements of each block at places that both ends draw";
  let description = [{
    `scaled`, the default, multiplies by block / k: unbiased.

    Example: `#bagua.randk<k = 16, block = 1024, scaled = false>`
  }];
  let parameters = (ins "int64_t":$k, "int64_t":$block, DefaultValuedParameter<"bool", "true">:$scaled);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Bagua_UserCodecAttr : Bagua_Codec<"UserCodec", "codec"> {
  let summary = "A codec that the file defines: `bagua.codec @name`";
  let description = [{
    `program`, where it stands, is what the definition says, so that sizes and kernels are known without it:
    linkCodecs() puts it there.

    Example: `#bagua.codec<@absmax4>`
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$name, OptionalParameter<"::mlir::DictionaryAttr">:$program);
  let assemblyFormat = "`<` $name (`,` $program^)? `>`";
  let genVerifyDecl = 1;
}

#endif // BAGUA_CODECS
