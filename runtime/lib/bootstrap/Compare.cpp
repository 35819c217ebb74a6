// Finds where two JSON texts differ.
#include "Compare.h"
#include "Text.h"

#include <nlohmann/json.hpp>

namespace bagua::rt {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDepthMax = 64;
constexpr size_t kShownBytesMax = 120;

std::string shown(std::string text) {
  if (text.size() > kShownBytesMax)
    text = text.substr(0, kShownBytesMax) + "…";
  return text;
}

std::string shown(const Json &value) {
  return shown(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// An array element is easier to find by its name than by its index.
std::string element(size_t index, const Json &value) {
  std::string text = cat("[", index, "]");
  if (value.is_object()) {
    auto name = value.find("name");
    if (name != value.end() && name->is_string())
      text += cat(" ('", name->get_ref<const std::string &>(), "')");
  }
  return text;
}

std::optional<Difference> compare(const Json &mine, const Json &theirs, const std::string &path,
                                  int depth) {
  bool descend = depth < kDepthMax;
  if (descend && mine.is_object() && theirs.is_object()) {
    auto member = [&](const std::string &key) { return path.empty() ? key : path + "." + key; };
    for (const auto &[key, value] : mine.items()) {
      auto other = theirs.find(key);
      if (other == theirs.end())
        return Difference{member(key), shown(value), "nothing"};
      if (auto found = compare(value, *other, member(key), depth + 1))
        return found;
    }
    for (const auto &[key, value] : theirs.items())
      if (!mine.contains(key))
        return Difference{member(key), "nothing", shown(value)};
    return std::nullopt;
  }
  if (descend && mine.is_array() && theirs.is_array()) {
    for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
      bool sameName = element(i, mine[i]) == element(i, theirs[i]);
      std::string here = path + (sameName ? element(i, mine[i]) : cat("[", i, "]"));
      if (auto found = compare(mine[i], theirs[i], here, depth + 1))
        return found;
    }
    size_t i = std::min(mine.size(), theirs.size());
    if (mine.size() > i)
      return Difference{cat(path, "[", i, "]"), shown(mine[i]), "nothing"};
    if (theirs.size() > i)
      return Difference{cat(path, "[", i, "]"), "nothing", shown(theirs[i])};
    return std::nullopt;
  }
  if (mine == theirs)
    return std::nullopt;
  return Difference{path, shown(mine), shown(theirs)};
}

} // namespace

std::optional<Difference> firstDifference(std::string_view mine, std::string_view theirs) {
  if (mine == theirs)
    return std::nullopt;
  Json a = Json::parse(mine, nullptr, /*allow_exceptions=*/false);
  Json b = Json::parse(theirs, nullptr, /*allow_exceptions=*/false);
  if (a.is_discarded() || b.is_discarded())
    return Difference{"", shown(std::string(mine)), shown(std::string(theirs))};
  return compare(a, b, "", 0);
}

} // namespace bagua::rt
