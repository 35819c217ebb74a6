// Status codes and error propagation shared by every part of the runtime.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include <cstdio>
#include <cstdlib>

namespace bagua::rt {

using absl::Status;
using absl::StatusOr;

// How the runtime uses absl's codes (the C ABI maps them one to one, see bagua.h):
//   kInvalidArgument    bad input from the caller, a file, or an environment variable
//   kFailedPrecondition a call in the wrong state
//   kAborted            ranks disagree (plan, schedule, dtype, parameter); the message names both
//   kUnavailable        a peer is lost (dead, or said goodbye too early); the message names the
//   rank kDeadlineExceeded   a peer did not answer within the step or bootstrap timeout
//   kUnimplemented      a valid request that this build cannot serve
//   kResourceExhausted  memory, descriptors, slots
//   kInternal           a foreign library failed; the message carries its code

} // namespace bagua::rt

#define BAGUA_CONCAT_INNER(a, b) a##b
#define BAGUA_CONCAT(a, b) BAGUA_CONCAT_INNER(a, b)

/// Returns the Status of `expr` from the enclosing function if it is an error.
#define BAGUA_TRY(expr)                                                                            \
  do {                                                                                             \
    if (::absl::Status baguaStatus = (expr); !baguaStatus.ok())                                    \
      return baguaStatus;                                                                          \
  } while (false)

/// Declares `decl` with the value of the StatusOr `expr`, or returns its error.
#define BAGUA_ASSIGN(decl, expr) BAGUA_ASSIGN_IMPL(BAGUA_CONCAT(baguaOr, __LINE__), decl, expr)
#define BAGUA_ASSIGN_IMPL(tmp, decl, expr)                                                         \
  auto tmp = (expr);                                                                               \
  if (!tmp.ok())                                                                                   \
    return std::move(tmp).status();                                                                \
  decl = *std::move(tmp)

/// Our bug, never input from outside: aborts, in release builds too.
#define BAGUA_CHECK(condition)                                                                     \
  do {                                                                                             \
    if (!(condition)) [[unlikely]] {                                                               \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition);           \
      std::abort();                                                                                \
    }                                                                                              \
  } while (false)
