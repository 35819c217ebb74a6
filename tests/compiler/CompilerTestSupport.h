// What the compiler's suites share: a context, parsing, captured diagnostics, inputs as vectors.
#pragma once

#include "bagua/compiler/Interpreter.h"
#include "bagua/dialect/Sched/Sched.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

namespace bagua::test {

inline std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A context whose diagnostics are kept as text, one a line, with their notes.
class Ir {
public:
  Ir() : handler_(&context_, [this](mlir::Diagnostic &diagnostic) { return keep(diagnostic); }) {
    context_.printOpOnDiagnostic(false);
    context_
        .loadDialect<ir::sched::SchedDialect, mlir::arith::ArithDialect, mlir::math::MathDialect>();
  }

  mlir::MLIRContext &context() { return context_; }
  const std::string &diagnostics() const { return diagnostics_; }

  /// Null after an error.
  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text,
                                          const std::string &name = "t.mlir") {
    return mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(&context_), name);
  }

private:
  mlir::LogicalResult keep(mlir::Diagnostic &diagnostic) {
    llvm::raw_string_ostream out(diagnostics_);
    out << diagnostic.str() << '\n';
    for (mlir::Diagnostic &note : diagnostic.getNotes())
      out << "note: " << note.getLocation() << ": " << note.str() << '\n';
    return mlir::success();
  }

  std::string diagnostics_;
  mlir::MLIRContext context_{mlir::MLIRContext::Threading::DISABLED};
  mlir::ScopedDiagnosticHandler handler_;
};

template <typename T>
std::vector<std::vector<T>> elementsOf(const std::vector<compiler::Bytes> &lists) {
  std::vector<std::vector<T>> result;
  for (const compiler::Bytes &bytes : lists) {
    result.emplace_back(bytes.size() / sizeof(T));
    if (!bytes.empty()) // memcpy takes no null, not even for nothing.
      std::memcpy(result.back().data(), bytes.data(), bytes.size());
  }
  return result;
}

template <typename T>
std::vector<compiler::Bytes> bytesOf(const std::vector<std::vector<T>> &lists) {
  std::vector<compiler::Bytes> result;
  for (const std::vector<T> &list : lists) {
    result.emplace_back(list.size() * sizeof(T));
    if (!list.empty())
      std::memcpy(result.back().data(), list.data(), result.back().size());
  }
  return result;
}

/// Where two runs first differ, or "" if they do not.
template <typename T>
std::string firstDifference(const std::vector<compiler::Bytes> &got,
                            const std::vector<compiler::Bytes> &expected) {
  if (got.size() != expected.size())
    return "numbers of ranks differ";
  auto a = elementsOf<T>(got), b = elementsOf<T>(expected);
  for (size_t rank = 0; rank < a.size(); ++rank) {
    if (a[rank].size() != b[rank].size())
      return "lengths differ";
    for (size_t i = 0; i < a[rank].size(); ++i)
      if (std::memcmp(&a[rank][i], &b[rank][i], sizeof(T)) != 0) {
        std::ostringstream text;
        text << std::hexfloat << "rank " << rank << ", element " << i << ": got " << a[rank][i]
             << ", expected " << b[rank][i];
        return text.str();
      }
  }
  return "";
}

} // namespace bagua::test
