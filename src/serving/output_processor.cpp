#include "serving/output_processor.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace fairlead::serving {

OutputProcessor::OutputProcessor(const OutputRules& rules, const tokenizer::Tokenizer& tokenizer,
                                 std::span<const engine::TokenId> prompt)
    : rules_(rules), decoder_(tokenizer, rules.skip_special_tokens, prompt) {
  if (!rules.stop_strings.empty() && rules.detokenize) {
    matcher_.emplace(rules.stop_strings, rules.include_stop);
  }
}

OutputProcessor::Step OutputProcessor::push(std::span<const engine::TokenId> ids,
                                            const engine::Finish* finish, std::string& text) {
  offsets_.clear();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const engine::TokenId id = ids[i];
    ++count_;
    if (rules_.offsets) {
      offsets_.push_back(characters_);
    }
    if (stops_at(id, i + 1 == ids.size(), finish)) {
      return {i + 1, end_at_token(id, text)};
    }
    if (auto end = add_text(id, text)) {
      return {i + 1, std::move(end)};
    }
  }
  if (!finish) {
    return {ids.size(), std::nullopt};
  }
  if (auto matched = release_rest(text)) {
    return {ids.size(), std::move(matched)};
  }
  ChoiceEnd end;
  end.reason = finish->reason == engine::FinishReason::Length ? EndReason::Length : EndReason::Stop;
  return {ids.size(), std::move(end)};
}

// The engine honours the user's ids itself; checking them here too keeps the promise with engines
// that do not.
bool OutputProcessor::stops_at(engine::TokenId id, bool last, const engine::Finish* finish) const {
  if (last && finish && finish->reason == engine::FinishReason::Stop) {
    const bool reported = finish->stop_token_id || finish->eos_token_id;
    if (reported ? finish->stop_token_id == id || finish->eos_token_id == id
                 : !rules_.ignore_eos && std::ranges::binary_search(rules_.eos_token_ids, id)) {
      return true;
    }
  }
  return count_ >= rules_.min_tokens && std::ranges::binary_search(rules_.user_stop_ids, id);
}

ChoiceEnd OutputProcessor::end_at_token(engine::TokenId id, std::string& text) {
  ChoiceEnd end;
  if (std::ranges::binary_search(rules_.user_stop_ids, id)) {
    end.matched = id;
  }
  if (rules_.include_stop) {
    if (auto matched = add_text(id, text)) {
      return *matched;
    }
  }
  if (auto matched = release_rest(text)) {
    return *matched;
  }
  return end;
}

std::optional<ChoiceEnd> OutputProcessor::add_text(engine::TokenId id, std::string& text) {
  if (!rules_.detokenize) {
    return std::nullopt;
  }
  if (!matcher_ || count_ < rules_.min_tokens) {
    decode(id, text);
    return std::nullopt;
  }
  scratch_.clear();
  decode(id, scratch_);
  if (const auto which = matcher_->feed(scratch_, text)) {
    return matched_string(*which);
  }
  return std::nullopt;
}

void OutputProcessor::decode(engine::TokenId id, std::string& text) {
  const std::size_t before = text.size();
  decoder_.push(id, text);
  if (rules_.offsets) {
    characters_ += static_cast<std::uint32_t>(utf8::count(std::string_view(text).substr(before)));
  }
}

std::optional<ChoiceEnd> OutputProcessor::release_rest(std::string& text) {
  if (!rules_.detokenize) {
    return std::nullopt;
  }
  if (matcher_) {
    if (const auto which = matcher_->finish(text)) {
      return matched_string(*which);
    }
  }
  decoder_.flush(text);  // an incomplete character, which no stop string can contain
  return std::nullopt;
}

ChoiceEnd OutputProcessor::matched_string(std::size_t which) const {
  ChoiceEnd end;
  end.matched = rules_.stop_strings[which];
  return end;
}

}  // namespace fairlead::serving
