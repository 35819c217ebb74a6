// The algorithms under test: where their text is, and what they must compute.
#pragma once

#include "bagua/Schedule.h"
#include "bagua/compiler/Interpreter.h"
#include "bagua/compiler/Pipelines.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>
#include <string>
#include <vector>

namespace bagua::test {

/// What a step leaves in the bucket that the algorithm changes, and what each rank sends.
struct Expected {
  std::vector<compiler::Bytes> values;
  std::vector<int64_t> wireBytes;
};

struct Algorithm {
  std::string name;            ///< Of the test case.
  std::string file;            ///< Relative to the source tree.
  bool changesWeights = false; ///< Else gradients.
  int64_t block = 2048;        ///< Lengths around it are tested.
  std::vector<kernels::DType> dtypes;
  Expected (*expected)(const std::vector<compiler::Bytes> &inputs, kernels::DType dtype) = nullptr;
};

/// The lowering's inputs (tests/compiler/Conversion), relative to the source tree: more shapes of
/// programs than algorithms/ has, whose oracle is the bagua interpreter.
std::vector<std::string> furtherFiles();

/// Everything in algorithms/.
const std::vector<Algorithm> &algorithms();

/// Empty, single, odd, around a codec block, several blocks, and a prime near 10^6.
std::vector<int64_t> lengthsOf(const Algorithm &algorithm);
inline constexpr int64_t kLargeLength = 1'000'003;

inline constexpr int64_t kWorlds[] = {1, 2, 3, 4, 5, 8};

/// Nodes of equal size.
struct Layout {
  int64_t nodes, local;
  int64_t world() const { return nodes * local; }
  std::string name() const { return std::to_string(nodes) + "x" + std::to_string(local); }
  std::vector<int> hosts() const; ///< By rank.
};
inline constexpr Layout kLayouts[] = {{1, 1}, {1, 3}, {2, 1}, {2, 2}, {3, 1},
                                      {2, 4}, {3, 2}, {4, 1}, {4, 2}};

/// True if the schedule asks for a rank's place in its node, or for nodes.
bool countsNodes(const rt::Schedule &schedule);
/// Those under test: kWorlds on one node, or kLayouts for what counts nodes.
std::vector<Layout> layoutsOf(const rt::Schedule &schedule);
/// The .mlir files in `folder`, sorted; relative to the source tree, like the folder.
std::vector<std::string> filesIn(const std::string &folder);

/// A module lowered to each level, and the schedule of the last.
class Compiled {
public:
  /// Failures are failures of the test.
  explicit Compiled(const Algorithm &algorithm);
  /// `file` is relative to the source tree. With `mayNotLower`, a program that schedules cannot say
  /// leaves the schedule null.
  explicit Compiled(const std::string &file, bool mayNotLower = false);
  /// Of a test's own.
  struct Source {
    std::string name, text;
  };
  explicit Compiled(const Source &source);

  mlir::ModuleOp at(compiler::Level level) const { return *modules_[static_cast<size_t>(level)]; }
  const std::shared_ptr<const rt::Schedule> &schedule() const { return schedule_; }
  const std::vector<uint8_t> &bytes() const { return bytes_; }
  /// Empty unless something went wrong, which was also a test failure.
  const std::string &diagnostics() const { return diagnostics_; }

private:
  void compile(const Source &source, bool mayNotLower);

  std::string diagnostics_;
  std::unique_ptr<mlir::MLIRContext> context_;
  std::unique_ptr<mlir::ScopedDiagnosticHandler> handler_;
  mlir::OwningOpRef<mlir::ModuleOp> modules_[3];
  std::vector<uint8_t> bytes_;
  std::shared_ptr<const rt::Schedule> schedule_;
};

/// "" or where `got` first differs from `expected`.
std::string differenceOf(const std::vector<compiler::Bytes> &got,
                         const std::vector<compiler::Bytes> &expected, kernels::DType dtype);

} // namespace bagua::test
