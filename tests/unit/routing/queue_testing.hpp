#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "routing/admission_queue.hpp"

namespace fairlead::routing {

/// A profile of classes c0, c1, ... with these fields, as in `quantum: 3, queue_policy: wspt`.
inline std::shared_ptr<const PolicyProfile> make_profile(
    std::initializer_list<std::string_view> classes) {
  std::string text =
      "default_policy_family: f\n"
      "uncached_isl_buckets: [{min_tokens: 0, bucket: b}]\n"
      "policy_classes:\n";
  std::size_t index = 0;
  for (const std::string_view fields : classes) {
    text += fmt::format("- {{name: c{}, {}{}}}\n", index,
                        index == 0 ? "policy_family: f, cache_bucket: b, " : "", fields);
    ++index;
  }
  const auto config = PolicyConfig::parse(text, {});
  EXPECT_TRUE(config) << config.error().message;
  return config->profile("");
}

/// A point of time so many milliseconds after the queue's start.
inline AdmissionQueue::Clock::time_point at_ms(std::int64_t ms) {
  return AdmissionQueue::Clock::time_point(std::chrono::milliseconds(ms));
}

/// The queue's start.
inline const AdmissionQueue::Clock::time_point kQueueStart{};

}  // namespace fairlead::routing
