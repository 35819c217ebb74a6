// What the compiler knows of a codec, built-in or not.
#ifndef BAGUA_INTERFACES
#define BAGUA_INTERFACES

include "mlir/IR/OpBase.td"

def Bagua_CodecAttrInterface : AttrInterface<"CodecAttrInterface"> {
  let cppNamespace = "::bagua::ir";
  let description = [{
    A codec turns runs of elements into packed bytes and back, block by block, blocks counted from the
    bucket's first element. Bytes of a whole number of blocks followed by bytes of further elements are the
    bytes of all of them together: so a shard's packed bytes lie at packedBytes(elements before it).
  }];
  let methods = [
    InterfaceMethod<"Elements of one block. Shards are cut at multiples of it.", "int64_t", "getBlock">,
    InterfaceMethod<"Exact bytes of `count` elements, the last block possibly short.",
                    "int64_t", "packedBytes", (ins "int64_t":$count)>,
    InterfaceMethod<"The same as index arithmetic on `count`.", "::mlir::Value", "buildPackedBytes",
                    (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::Value":$count)>,
    InterfaceMethod<"The same for people: a term in the given argument.", "std::string",
                    "packedBytesFormula", (ins "::llvm::StringRef":$count)>,
    InterfaceMethod<"Equal input gives equal bytes.", "bool", "isDeterministic">,
    InterfaceMethod<"Packed values can be added without decoding.", "bool", "isClosedUnderSum">,
    InterfaceMethod<"Element types of buckets it takes (f32, f64).", "bool", "acceptsF64">,
    InterfaceMethod<"Kernel that encodes one run.", "::llvm::StringRef", "getEncodeKernel">,
    InterfaceMethod<"Kernel that decodes one run.", "::llvm::StringRef", "getDecodeKernel">,
    InterfaceMethod<"Kernel that decodes n runs and folds them from the left.", "::llvm::StringRef",
                    "getDecodeReduceKernel", (ins "::bagua::ir::ReduceKind":$kind)>,
    InterfaceMethod<"Attributes of these kernels, sorted by name.", "::mlir::DictionaryAttr",
                    "getKernelAttributes">,
    InterfaceMethod<"Encoding draws random numbers: its kernel takes their scalars.", "bool", "isRandom",
                    (ins), "", "return false;">,
    InterfaceMethod<"So does decoding, which must draw those of the encoding.", "bool", "decodeIsRandom",
                    (ins), "", "return false;">,
  ];
}

#endif // BAGUA_INTERFACES
