#include "api/openai/token_columns.hpp"

#include <algorithm>

#include "base/json.hpp"

namespace fairlead::api::openai {
namespace {

/// The first items of a column as an array.
void append_array(std::string& out, std::string_view column, std::size_t end) {
  out += '[';
  if (end > 0) {
    out += column.substr(1, end - 1);
  }
  out += ']';
}

}  // namespace

void TokenColumns::add_row(engine::TokenId id, std::uint32_t offset, bool of_prompt) {
  rows_.push_back({id, offset, of_prompt, items_.size(), logprobs_.size(), maps_.size()});
}

void TokenColumns::add_arrays(engine::TokenId id, const engine::TokenLogprob* entry) {
  items_ += ',';
  writer_->token(items_, id);
  logprobs_ += ',';
  maps_ += ',';
  if (entry) {
    json::append_number(logprobs_, double{entry->logprob});
    writer_->text_map(maps_, id, *entry, shape_.limit);
  } else {
    logprobs_ += "null";
    maps_ += "null";
  }
}

void TokenColumns::add(engine::TokenId id, const engine::TokenLogprob* entry,
                       std::uint32_t offset) {
  if (shape_.logprobs && entry) {
    if (shape_.chat) {
      items_ += ',';
      writer_->chat_entry(items_, id, *entry, shape_.limit);
    } else {
      add_arrays(id, entry);
    }
  }
  add_row(id, offset, false);
}

void TokenColumns::add_prompt(engine::TokenId id, const engine::TokenLogprob* entry,
                              std::uint32_t offset) {
  add_arrays(id, entry);
  add_row(id, offset, true);
}

std::size_t TokenColumns::ready(std::uint32_t characters) const {
  const auto first_held =
      std::ranges::find_if(rows_, [&](const Row& row) { return row.offset >= characters; });
  return static_cast<std::size_t>(first_held - rows_.begin());
}

void TokenColumns::write_logprobs(std::string& out, std::size_t count,
                                  std::uint32_t characters) const {
  const Row* last = count > 0 ? &rows_[count - 1] : nullptr;
  if (shape_.chat) {
    out += "{\"content\":";
    append_array(out, items_, last ? last->item_end : 0);
    out += ",\"refusal\":null}";
    return;
  }
  out += "{\"tokens\":";
  append_array(out, items_, last ? last->item_end : 0);
  out += ",\"token_logprobs\":";
  append_array(out, logprobs_, last ? last->logprob_end : 0);
  out += ",\"top_logprobs\":";
  append_array(out, maps_, last ? last->map_end : 0);
  out += ",\"text_offset\":[";
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) {
      out += ',';
    }
    json::append_number(out, std::uint64_t{std::min(rows_[i].offset, characters)});
  }
  out += "]}";
}

void TokenColumns::write_ids(std::string& out, std::size_t count) const {
  char separator = '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (rows_[i].of_prompt) {
      continue;
    }
    out += separator;
    json::append_number(out, std::uint64_t{rows_[i].id});
    separator = ',';
  }
  out += separator == '[' ? "[]" : "]";
}

void TokenColumns::drop(std::size_t count) {
  if (count == 0) {
    return;
  }
  const Row last = rows_[count - 1];
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(count));
  items_.erase(0, last.item_end);
  logprobs_.erase(0, last.logprob_end);
  maps_.erase(0, last.map_end);
  for (Row& row : rows_) {
    row.item_end -= last.item_end;
    row.logprob_end -= last.logprob_end;
    row.map_end -= last.map_end;
  }
}

}  // namespace fairlead::api::openai
