// Finds where two JSON texts differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bagua::rt {

struct Difference {
  std::string path; ///< "buckets[2] ('conv1').length"; empty: the whole text.
  std::string mine, theirs;
};

/// The first difference in document order, or nothing if the values are equal. Texts that are no
/// JSON are compared as they are.
std::optional<Difference> firstDifference(std::string_view mine, std::string_view theirs);

} // namespace bagua::rt
