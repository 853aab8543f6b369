#include "api/openai/token_report.hpp"

#include <algorithm>
#include <utility>

#include "base/json.hpp"
#include "base/utf8.hpp"

namespace fairlead::api::openai {
namespace {

void append_ids(std::string& out, const std::vector<engine::TokenId>& ids) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) {
      out += ',';
    }
    json::append_number(out, std::uint64_t{ids[i]});
  }
  out += ']';
}

/// Finds where the tokens of a prompt stand in its text. What the text does not spell, such as an
/// added beginning of sequence, has no length.
class PromptOffsets {
 public:
  explicit PromptOffsets(std::string_view text) : text_(text) {}

  /// Characters before the next token.
  std::uint32_t next(const tokenizer::Tokenizer& tokenizer, engine::TokenId id) {
    const std::uint32_t offset = characters_;
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (text_.substr(at_).starts_with(bytes)) {
      advance(bytes.size());
    } else if (!tokenizer.is_special(id)) {
      advance(std::min(bytes.size(), text_.size() - at_));  // the tokenizer rewrote the text
    }
    return offset;
  }

 private:
  void advance(std::size_t bytes) {
    at_ += bytes;
    // A character counts once its last byte is passed.
    for (std::size_t length = 1; counted_ < at_; counted_ += length) {
      const int known = utf8::sequence_length(text_.substr(counted_));
      length = static_cast<std::size_t>(std::max(1, known));
      if (counted_ + length > at_) {
        return;
      }
      ++characters_;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t counted_ = 0;  // where the character after the counted ones begins
  std::uint32_t characters_ = 0;
};

}  // namespace

void append_matched(std::string& out, const serving::ChoiceEnd& end) {
  if (const auto* id = std::get_if<engine::TokenId>(&end.matched)) {
    json::append_number(out, std::uint64_t{*id});
  } else if (const auto* text = std::get_if<std::string>(&end.matched)) {
    json::append_string(out, *text);
  } else {
    out += "null";
  }
}

TokenReport::TokenReport(std::shared_ptr<const TokenDetails> details, bool chat,
                         std::uint32_t choices)
    : details_(std::move(details)),
      chat_(chat),
      writer_(*details_->tokenizer, details_->tokens_as_ids),
      per_prompt_(std::max<std::size_t>(choices / details_->prompts.size(), 1)),
      prompt_writes_((details_->prompt_once && !chat ? per_prompt_ : 1) +
                     (details_->nvext.prompt_logprobs ? 1 : 0)) {
  choices_.reserve(choices);
  const TokenColumns::Shape shape{
      .chat = chat, .logprobs = details_->logprobs, .limit = details_->alternatives};
  for (std::uint32_t i = 0; i < choices; ++i) {
    Choice& choice = choices_.emplace_back(TokenColumns(writer_, shape));
    if (!chat_) {
      choice.echo_characters = static_cast<std::uint32_t>(utf8::count(echo(i)));
      choice.characters = choice.echo_characters;
    }
  }
}

const PromptDetails& TokenReport::prompt_of(std::uint32_t choice) const {
  return details_->prompts[std::min(choice / per_prompt_, details_->prompts.size() - 1)];
}

std::size_t TokenReport::prompt_bytes() const {
  std::size_t bytes = 0;
  std::string scratch;
  for (const PromptDetails& prompt : details_->prompts) {
    scratch.clear();
    json::append_escaped(scratch, prompt.echo);
    bytes += scratch.size() * per_prompt_;
    if (details_->token_ids) {
      scratch.clear();
      append_ids(scratch, prompt.ids);
      bytes += scratch.size() * (chat_ ? 1 : per_prompt_);
    }
  }
  return bytes;
}

void TokenReport::on_prompt(std::uint32_t index, const engine::PromptInfo& info) {
  Choice& choice = choices_[index];
  const PromptDetails& prompt = prompt_of(index);
  bytes_ -= choice.columns.bytes() + choice.prompt_logprobs.size() * prompt_writes_;
  choice.columns.drop(choice.columns.size());
  choice.prompt_logprobs.drop(choice.prompt_logprobs.end());
  if (info.logprobs.size() != prompt.ids.size()) {
    return;  // not asked for
  }
  if (details_->echo && details_->logprobs && !chat_) {
    add_prompt_rows(choice, prompt, info.logprobs);
  }
  if (details_->prompt_alternatives) {
    add_prompt_logprobs(choice.prompt_logprobs, prompt, info.logprobs);
  }
}

void TokenReport::add_prompt_logprobs(Column& column, const PromptDetails& prompt,
                                      std::span<const engine::TokenLogprob> logprobs) {
  const std::size_t before = bytes_;
  column.tail() += "[null";  // nothing comes before the first token
  for (std::size_t i = 1; i < prompt.ids.size() && bytes_ <= limit_; ++i) {
    std::string& out = column.tail();
    out += ',';
    writer_.id_map(out, prompt.ids[i], logprobs[i], *details_->prompt_alternatives);
    bytes_ = before + column.size() * prompt_writes_;
  }
  column.tail() += ']';
  bytes_ = before + column.size() * prompt_writes_;
}

void TokenReport::add_prompt_rows(Choice& choice, const PromptDetails& prompt,
                                  std::span<const engine::TokenLogprob> logprobs) {
  PromptOffsets offsets(prompt.echo);
  const std::size_t before = bytes_;
  for (std::size_t i = 0; i < prompt.ids.size() && bytes_ <= limit_; ++i) {
    choice.columns.add_prompt(prompt.ids[i], i == 0 ? nullptr : &logprobs[i],
                              offsets.next(*details_->tokenizer, prompt.ids[i]));
    bytes_ = before + choice.columns.bytes();
  }
}

void TokenReport::on_delta(std::uint32_t index, const serving::Delta& delta) {
  Choice& choice = choices_[index];
  choice.characters += static_cast<std::uint32_t>(utf8::count(delta.text));
  const std::size_t others = bytes_ - choice.columns.bytes();
  for (std::size_t i = 0; i < delta.offsets.size() && bytes_ <= limit_; ++i) {
    choice.columns.add(delta.ids[i], i < delta.logprobs.size() ? &delta.logprobs[i] : nullptr,
                       choice.echo_characters + delta.offsets[i]);
    bytes_ = others + choice.columns.bytes();
  }
}

void TokenReport::select(std::uint32_t index, bool ended) {
  Choice& choice = choices_[index];
  choice.selected = ended ? choice.columns.size() : choice.columns.ready(choice.characters);
}

void TokenReport::release(std::uint32_t index) {
  Choice& choice = choices_[index];
  const std::size_t others = bytes_ - choice.columns.bytes();
  choice.columns.drop(std::exchange(choice.selected, 0));
  bytes_ = others + choice.columns.bytes();
}

void TokenReport::take_logprobs(std::string& out, std::uint32_t index, bool or_null) {
  Choice& choice = choices_[index];
  if (!details_->logprobs || (or_null && choice.selected == 0)) {
    out += "null";
    return;
  }
  const std::size_t others = bytes_ - choice.columns.bytes();
  choice.columns.take_logprobs(out, choice.selected, choice.characters);
  bytes_ = others + choice.columns.bytes();
}

void TokenReport::write_token_ids(std::string& out, std::uint32_t index) const {
  if (details_->token_ids) {
    out += ",\"token_ids\":";
    choices_[index].columns.write_ids(out, choices_[index].selected);
  }
}

void TokenReport::write_prompt_token_ids(std::string& out, std::uint32_t index) const {
  if (details_->token_ids) {
    out += ",\"prompt_token_ids\":";
    append_ids(out, prompt_of(index).ids);
  }
}

void TokenReport::write_prompt_logprobs(std::string& out, std::uint32_t index) const {
  if (details_->prompt_once) {
    index -= index % static_cast<std::uint32_t>(per_prompt_);
  }
  const Column& record = choices_[index].prompt_logprobs;
  if (record.size() > 0) {
    out += ",\"prompt_logprobs\":";
    record.append_to(out);
  }
}

void TokenReport::write_nvext(std::string& out, std::uint32_t index,
                              const serving::ChoiceEnd* end) const {
  const std::size_t before = out.size();
  if (details_->nvext.completion_token_ids) {
    out += ",\"completion_token_ids\":";
    choices_[index].columns.write_ids(out, choices_[index].selected);
  }
  if (end && details_->nvext.stop_reason) {
    out += ",\"stop_reason\":";
    append_matched(out, *end);
  }
  if (end && details_->nvext.prompt_logprobs) {
    write_prompt_logprobs(out, index);
  }
  if (out.size() > before) {
    out.replace(before, 1, ",\"nvext\":{");
    out += '}';
  }
}

}  // namespace fairlead::api::openai
