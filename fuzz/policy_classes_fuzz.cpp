// links: fl_routing

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "routing/admission_queue.hpp"

namespace {

using namespace fairlead;
using namespace fairlead::routing;

// Every request gets a class of the profile, and a queue by the profile serves what it took.
void use(const std::shared_ptr<const PolicyProfile>& profile) {
  const auto classes = profile->classes();
  if (classes.empty()) {
    std::abort();
  }
  std::array<QueueEntry, 64> entries;
  AdmissionQueue queue(profile, entries.size() - 8, {});
  constexpr std::array<std::uint32_t, 5> kTokens{0, 1, 3072, 100'000,
                                                 std::numeric_limits<std::uint32_t>::max()};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint32_t tokens = kTokens[i % kTokens.size()];
    const std::string_view requested =
        i % 3 == 0 ? "" : std::string_view(classes[i % classes.size()].name);
    const std::size_t of = profile->classify(requested, tokens);
    if (of >= classes.size() || classes[of].quantum == 0) {
      std::abort();
    }
    const auto added =
        queue.add(entries[i],
                  {.policy_class = of,
                   .prompt_tokens = tokens,
                   .priority = static_cast<std::int32_t>(i % 5) - 1,
                   .strict_priority = static_cast<std::uint32_t>(i % 2)},
                  AdmissionQueue::Clock::time_point(std::chrono::milliseconds(i)), 1 + i % 3);
    if (!added && added.error().code != ErrorCode::QueueFull) {
      std::abort();
    }
    // More busy targets never make a busy pool free.
    if (pool_busy(classes[of], 3, 8) && !pool_busy(classes[of], 4, 8)) {
      std::abort();
    }
  }
  std::size_t left = queue.size();
  while (QueueEntry* entry = queue.next()) {
    if (left % 7 == 0) {
      queue.give_back(*entry);
      if (queue.next() != entry) {
        std::abort();
      }
    }
    queue.done(*entry);
    --left;
  }
  if (left != 0 || queue.size() != 0) {
    std::abort();
  }
}

}  // namespace

// Arbitrary policy files: an error has one line; what is accepted can be worked with.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<PolicyConfig> config = PolicyConfig::parse(text, {.threshold = 2.0});
  if (!config) {
    if (config.error().code != ErrorCode::InvalidRequest || config.error().message.empty() ||
        config.error().message.contains('\n')) {
      std::abort();
    }
    return 0;
  }
  use(config->profile(""));
  use(config->profile("m"));
  return 0;
}
