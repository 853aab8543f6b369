#include "engine/sglang_grpc/dialect.hpp"

namespace fairlead::engine::sglang_grpc {
namespace {

constexpr std::string_view kCumulative = "sglang-cumulative";
constexpr std::string_view kIncremental = "sglang-incremental";
constexpr std::string_view kPriority = "priority";
constexpr std::string_view kLowPriority = "low-priority-first";
constexpr std::string_view kStrictThinking = "strict-thinking";
constexpr std::string_view kEarly = "before-0.5.17";

void add(std::string& out, bool given, std::string_view word) {
  if (given) {
    out.append("+").append(word);
  }
}

}  // namespace

std::string dialect_text(const Dialect& dialect) {
  if (dialect.output == Dialect::Output::Unknown) {
    return {};
  }
  std::string out(dialect.output == Dialect::Output::Incremental ? kIncremental : kCumulative);
  add(out, dialect.priority == Dialect::Priority::HigherFirst, kPriority);
  add(out, dialect.priority == Dialect::Priority::LowerFirst, kLowPriority);
  add(out, dialect.strict_thinking, kStrictThinking);
  add(out, dialect.early, kEarly);
  return out;
}

Dialect dialect_from_text(std::string_view text) {
  Dialect out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find('+'));
    text.remove_prefix(word.size() < text.size() ? word.size() + 1 : text.size());
    if (word == kCumulative) {
      out.output = Dialect::Output::Cumulative;
    } else if (word == kIncremental) {
      out.output = Dialect::Output::Incremental;
    } else if (word == kPriority) {
      out.priority = Dialect::Priority::HigherFirst;
    } else if (word == kLowPriority) {
      out.priority = Dialect::Priority::LowerFirst;
    } else if (word == kStrictThinking) {
      out.strict_thinking = true;
    } else if (word == kEarly) {
      out.early = true;
    }
  }
  return out;
}

}  // namespace fairlead::engine::sglang_grpc
