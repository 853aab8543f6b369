#include "serving/migration.hpp"

#include <algorithm>
#include <array>

namespace fairlead::serving {
namespace {

struct Obstacle {
  std::string_view name;
  bool (*present)(const engine::GenerateRequest& request);
};

// Engines count penalties, grammars, budgets and forbidden sequences from the first token that
// they generated themselves, and a seed gives the same draws again from the beginning.
constexpr std::array kObstacles{
    Obstacle{"structured output", [](const auto& r) { return r.structured.has_value(); }},
    Obstacle{"penalties",
             [](const auto& r) {
               return r.sampling.presence_penalty != 0 || r.sampling.frequency_penalty != 0 ||
                      r.sampling.repetition_penalty != 1;
             }},
    Obstacle{"a seed and a temperature above 0",
             [](const auto& r) { return r.sampling.seed && r.sampling.temperature > 0; }},
    Obstacle{"bad words of several tokens",
             [](const auto& r) {
               return std::ranges::any_of(r.sampling.bad_words,
                                          [](const auto& words) { return words.size() > 1; });
             }},
    Obstacle{"a thinking budget",
             [](const auto& r) {
               return r.stop.thinking_token_budget && *r.stop.thinking_token_budget >= 0;
             }},
    Obstacle{"extra arguments", [](const auto& r) { return r.extra_args_required; }},
};

}  // namespace

std::string_view migration_obstacle(const engine::GenerateRequest& request) {
  const auto found = std::ranges::find_if(
      kObstacles, [&](const Obstacle& obstacle) { return obstacle.present(request); });
  return found == kObstacles.end() ? std::string_view() : found->name;
}

bool reduce(engine::StopConditions& stop, std::uint32_t delivered) {
  if (delivered >= stop.max_tokens) {
    return false;
  }
  stop.max_tokens -= delivered;
  stop.min_tokens -= std::min(stop.min_tokens, delivered);
  return true;
}

}  // namespace fairlead::serving
