// Sums of products of things that are not looked into ("atoms"): enough algebra to see that two
// expressions are one, however they are written. Roundings do not count.
#pragma once

#include <cmath>
#include <map>
#include <optional>

namespace bagua::compiler {

/// Atoms, by number, to powers that are not 0.
using Product = std::map<int, int>;
/// Products and their factors, none 0.
using Polynomial = std::map<Product, double>;

inline constexpr size_t kTermsMax = 64;

inline Polynomial number(double value) {
  return value == 0 ? Polynomial() : Polynomial{{Product(), value}};
}

inline Product operator*(Product a, const Product &b) {
  for (auto [atom, power] : b)
    if ((a[atom] += power) == 0)
      a.erase(atom);
  return a;
}

inline void add(Polynomial &sum, const Product &product, double factor) {
  auto [term, isNew] = sum.try_emplace(product, factor);
  if (isNew)
    return;
  double before = term->second;
  term->second += factor;
  // What is left of 0.1 + 0.2 - 0.3 is rounding.
  if (std::abs(term->second) <= 1e-12 * (std::abs(before) + std::abs(factor)))
    sum.erase(term);
}

inline Polynomial plus(Polynomial a, const Polynomial &b, double factorOfB = 1.0) {
  for (const auto &[product, factor] : b)
    add(a, product, factor * factorOfB);
  return a;
}

/// Nothing if it would be too long.
inline std::optional<Polynomial> times(const Polynomial &a, const Polynomial &b) {
  if (a.size() * b.size() > kTermsMax)
    return std::nullopt;
  Polynomial result;
  for (const auto &[product, factor] : a)
    for (const auto &[other, otherFactor] : b)
      add(result, product * other, factor * otherFactor);
  return result;
}

/// Nothing unless it is one term.
inline std::optional<Polynomial> reciprocal(const Polynomial &a) {
  if (a.size() != 1)
    return std::nullopt;
  Product inverse;
  for (auto [atom, power] : a.begin()->first)
    inverse[atom] = -power;
  return Polynomial{{inverse, 1.0 / a.begin()->second}};
}

/// What stands before `atom`, and the rest. Nothing if it occurs in other powers too.
inline std::optional<std::pair<Polynomial, Polynomial>> split(const Polynomial &sum, int atom) {
  Polynomial factor, rest;
  for (const auto &[product, value] : sum) {
    auto found = product.find(atom);
    if (found == product.end()) {
      rest.emplace(product, value);
    } else if (found->second == 1) {
      Product without = product;
      without.erase(atom);
      factor.emplace(without, value);
    } else {
      return std::nullopt;
    }
  }
  return std::pair(factor, rest);
}

} // namespace bagua::compiler
