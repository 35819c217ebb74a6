// Expressions of a schedule as people write them.
#pragma once

#include "bagua/Schedule.h"

#include <string>
#include <vector>

namespace bagua::tools {

/// Operands that `op` uses: the first 0 to 3 of a, b, c.
unsigned operandCount(fb::ExprOp op);

/// The bytecode of a kernel on one line; empty if it has none.
std::string codeText(const fb::KernelT &kernel);
/// "Bucket = 0, on resize Mean".
std::string stateText(const fb::StateT &state);

class ExprText {
public:
  /// `schedule` must outlive it and be valid. Very long subexpressions, and with `nameShared` also
  /// those that are used more than once, are called %N and listed by definitions().
  ExprText(const fb::ScheduleT &schedule, bool nameShared);

  /// E.g. "min(length, 2048 * (i0 + 1))".
  std::string operator()(uint32_t node) const { return text(node, 0, false); }

  /// "%17 = …" for each named subexpression, in order.
  std::vector<std::string> definitions() const;

private:
  std::string text(uint32_t node, int outerPrecedence, bool define) const;

  const fb::ScheduleT &schedule_;
  std::vector<bool> named_;
};

} // namespace bagua::tools
