// Packed values and values per peer.
#ifndef BAGUA_TYPES
#define BAGUA_TYPES

include "bagua/dialect/Bagua/BaguaAttrs.td"

class Bagua_Type<string name, string typeMnemonic> : TypeDef<Bagua_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Bagua_PackedType : Bagua_Type<"Packed", "packed"> {
  let summary = "Bytes of a tensor under a codec";
  let description = [{
    Example: `!bagua.packed<#bagua.minmax<bits = 8, block = 2048>, tensor<?xf32, #bagua.bucket>>`
  }];
  let parameters = (ins "::bagua::ir::CodecAttrInterface":$codec, "::mlir::Type":$element);
  let assemblyFormat = "`<` $codec `,` $element `>`";
  let genVerifyDecl = 1;
}

def Bagua_PerType : Bagua_Type<"Per", "per"> {
  let summary = "One value per rank of a group, or per neighbour of a topology";
  let description = [{
    `!bagua.per<@world, T>` holds one T for each rank i of the group. Where T is over a shard, element i is
    over the shard of rank i, so lengths differ; with `own`, every element is over this rank's own shard. Ranks of
    `@cross` have one shard of `@node`, and the other way round: such elements are `own`.
    `!bagua.per<#topology, T>` holds one T, over the bucket, for each neighbour; `#topology over @cross` for each
    among the ranks of a group, where T may be over a shard that they have in common, `own`.

    Examples:
    ```mlir
    !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>>        // a bucket in pieces
    !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>, own>   // everyone's version of my piece
    !bagua.per<@cross, tensor<?xf32, #bagua.shard<@node>>, own>    // my node's piece, of every node
    !bagua.per<#ring, tensor<?xf32, #bagua.bucket>>                // the neighbours' buckets
    ```
  }];
  let parameters = (ins "::mlir::Attribute":$over, "::mlir::Type":$element, "bool":$own);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Bagua_PlainTensor : Type<CPred<"::bagua::ir::isPlain($_self)">,
    "a tensor over a bucket or a shard, or a scalar">;
def Bagua_AnyPacked : Type<CPred<"::llvm::isa<::bagua::ir::PackedType>($_self)">, "packed bytes">;
def Bagua_AnyPer : Type<CPred<"::llvm::isa<::bagua::ir::PerType>($_self)">, "one value per peer">;
def Bagua_AnyValue : AnyTypeOf<[Bagua_PlainTensor, Bagua_AnyPacked, Bagua_AnyPer]>;

#endif // BAGUA_TYPES
