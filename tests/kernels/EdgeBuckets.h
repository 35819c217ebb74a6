// Buckets on which codecs have failed (cases.md, section H), and more of their kind.
#pragma once

#include "KernelTestSupport.h"

namespace bagua::kernels {

inline std::vector<float> scaled(std::vector<float> x, float factor, float offset = 0) {
  for (float &value : x)
    value = offset + factor * value;
  return x;
}

inline std::vector<float> normal(size_t count) {
  return randomValues<float>(count, 17, Data::Normal);
}

struct Bucket {
  std::string name;
  std::vector<float> values;
};

/// The edge buckets of cases.md, section H, that are finite; and more of their kind.
inline std::vector<Bucket> finiteBuckets(size_t count) {
  std::vector<Bucket> buckets = {{"normal", normal(count)}};
  for (float factor : {1e-6f, 1e-8f, 1e-9f, 1e-10f, 1e-20f, 1e-30f, 1e-36f, 1e-38f, 1e-40f, 1e-42f,
                       1e-44f, 1e30f, 1e37f})
    buckets.push_back(
        {"normal * " + std::to_string(std::log10(factor)), scaled(normal(count), factor)});
  buckets.push_back({"outlier 1e4", normal(count)});
  if (count > 0)
    buckets.back().values[count / 2] = 1e4f;
  buckets.push_back({"outlier 3e38", normal(count)});
  if (count > 0)
    buckets.back().values[count / 2] = 3e38f;
  for (float constant : {1.0f, 0.1f, 0.0f, -0.0f, 12345.0f, 1e30f, -1e30f, FLT_MAX, -FLT_MAX,
                         FLT_MIN, FLT_TRUE_MIN, -FLT_TRUE_MIN})
    buckets.push_back(
        {"constant " + std::to_string(constant), std::vector<float>(count, constant)});
  buckets.push_back({"100 + normal * 1e-5", scaled(normal(count), 1e-5f, 100)});
  buckets.push_back({"1e30 + few ulps", scaled(normal(count), 1e24f, 1e30f)});
  std::mt19937 random(23);
  for (float limit : {3e38f, FLT_MAX, FLT_MAX / 2, 0x1p118f, 0x1p119f}) {
    std::vector<float> values(count);
    std::uniform_real_distribution<double> uniform(-limit, limit);
    for (size_t i = 0; i < count; ++i)
      values[i] = i % 7 == 0 ? (i % 2 ? limit : -limit) : static_cast<float>(uniform(random));
    buckets.push_back({"range +-" + std::to_string(limit), values});
    for (float &value : values)
      value = std::fabs(value);
    buckets.push_back({"range 0.." + std::to_string(limit), values});
  }
  {
    std::vector<float> values(count), zeros(count), huge(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = std::bit_cast<float>(static_cast<uint32_t>(random() % 1000)) *
                  (random() % 2 ? 1.0f : -1.0f);
      zeros[i] = random() % 2 ? 0.0f : -0.0f;
      huge[i] = std::bit_cast<float>(0x7f7fffffu - static_cast<uint32_t>(random() % 40));
    }
    buckets.push_back({"denormals", values});
    buckets.push_back({"zeros of both signs", zeros});
    buckets.push_back({"ulps below FLT_MAX", huge});
    buckets.push_back({"ulps above -FLT_MAX", scaled(huge, -1)});
  }
  {
    std::vector<float> values = randomValues<float>(count, 29, Data::AnyBits);
    for (float &value : values)
      if (!std::isfinite(value))
        value = 1.0f;
    buckets.push_back({"any finite bits", values});
  }
  return buckets;
}

/// Those, and buckets with non-finite elements here and there.
inline std::vector<Bucket> buckets(size_t count) {
  std::vector<Bucket> all = finiteBuckets(count);
  all.push_back({"any bits", randomValues<float>(count, 31, Data::AnyBits)});
  for (float value : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> one = normal(count);
    if (count > 0)
      one[count / 3] = value;
    all.push_back({"one " + std::to_string(value), one});
    if (count > 0)
      one[count - 1] = one[0] = value;
    all.push_back({"some " + std::to_string(value), one});
  }
  return all;
}

} // namespace bagua::kernels
