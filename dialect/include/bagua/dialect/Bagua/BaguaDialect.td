// The `bagua` dialect: what an algorithm says, per rank, in value semantics.
#ifndef BAGUA_DIALECT
#define BAGUA_DIALECT

include "mlir/IR/OpBase.td"

def Bagua_Dialect : Dialect {
  let name = "bagua";
  let cppNamespace = "::bagua::ir";
  let summary = "Communication algorithms, per rank and per bucket";
  let description = [{
    SPMD, per bucket, value semantics: every rank runs the same handlers on its own bucket. Meaning and
    numbered constraints: dialect/SPEC.md.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::scf::SCFDialect"];
  let useDefaultTypePrinterParser = 1;
  let extraClassDeclaration = [{
    /// Says what attributes there are, and how one of ours that does not parse is written.
    ::mlir::Attribute parseAttribute(::mlir::DialectAsmParser &parser, ::mlir::Type type) const override;
    void printAttribute(::mlir::Attribute attribute, ::mlir::DialectAsmPrinter &printer) const override;
    /// Says what ops there are, in the place of one that is none.
    std::optional<ParseOpHook> getParseOperationHook(::llvm::StringRef name) const override;

    void registerAttributes();
    void registerTypes();
  }];
}

#endif // BAGUA_DIALECT
