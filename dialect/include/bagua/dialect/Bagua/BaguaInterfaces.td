// What the compiler knows of a codec and of a topology, built-in or not.
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

def Bagua_TopologyAttrInterface : AttrInterface<"TopologyAttrInterface"> {
  let cppNamespace = "::bagua::ir";
  let description = [{
    Who hears whom. Rank r has entries 0, 1, …; with each it hears from one rank, which may be itself, and
    sends to one, by a map that all ranks share. `rotate`: r sends to r + distance and hears r - distance.
    The other maps pair ranks: r sends to and hears from its partner, and is idle where that is r itself.
    The round is a number that all ranks share, by default that of the step.

    The ranks are those of a group: where a method takes a world or its size, it is the group's.

    The weight of an entry is an exact rational. Entries that hear one rank count once, with the sum of their
    weights; entries that hear oneself do not count (SPEC.md, M1).
  }];
  let methods = [
    InterfaceMethod<"Most entries that any rank of any world has.", "int64_t", "entriesMax">,
    InterfaceMethod<"Entries in a world of this size.", "int64_t", "entries", (ins "int64_t":$world)>,
    InterfaceMethod<"The same as index arithmetic.", "::mlir::Value", "buildEntries",
                    (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::Value":$world)>,
    InterfaceMethod<"Equal in every round.", "bool", "isStatic">,
    InterfaceMethod<"How its entries map ranks to peers.", "::bagua::ir::PeerMap", "getPeerMap">,
    InterfaceMethod<"`rotate`: how far entry `entry` sends, in [0, world); the entry exists.", "int64_t", "distance",
                    (ins "int64_t":$world, "int64_t":$round, "int64_t":$entry)>,
    InterfaceMethod<"The same as index arithmetic; entries that do not exist give any index.", "::mlir::Value",
                    "buildDistance",
                    (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::Value":$world,
                         "::mlir::Value":$round, "int64_t":$entry)>,
    InterfaceMethod<"`pairing`: its seed.", "int64_t", "pairingSeed", (ins), "", "return 0;">,
    InterfaceMethod<"Weight of an entry that exists, before equal ones are merged.", "::bagua::ir::Rational",
                    "weight", (ins "int64_t":$world, "int64_t":$entry)>,
    InterfaceMethod<"Its numerator as index arithmetic.", "::mlir::Value", "buildNumerator",
                    (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::Value":$world,
                         "int64_t":$entry)>,
    InterfaceMethod<"The denominator of all weights as index arithmetic.", "::mlir::Value", "buildDenominator",
                    (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::Value":$world)>,
    InterfaceMethod<"Rounds after which a world of this size sees the same peers again; 0: never.", "int64_t",
                    "period", (ins "int64_t":$world), "", "return 1;">,
    InterfaceMethod<"Whose ranks hear each other.", "::bagua::ir::Group", "getGroup", (ins), "",
                    "return ::bagua::ir::Group::World;">,
    InterfaceMethod<"The same among all ranks.", "::bagua::ir::TopologyAttrInterface", "amongAll", (ins), "",
                    "return $_attr;">,
  ];
}

#endif // BAGUA_INTERFACES
