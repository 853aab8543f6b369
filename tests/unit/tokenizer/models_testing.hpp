#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model_json.hpp"

namespace fairlead::tokenizer::testing {

/// The model that the text of a `model` member describes.
inline Result<std::unique_ptr<const Model>> read(std::string text) {
  const std::size_t size = text.size();
  text.resize(size + 64);
  const Result<ModelSource> source =
      open_model({std::string_view(text).substr(0, size), text.size()});
  if (!source) {
    return std::unexpected(source.error());
  }
  return read_model(*source);
}

/// The ids of a word, separated by spaces; the message of a failure.
inline std::string ids(const Model& model, std::string_view word) {
  std::vector<TokenId> found;
  if (const Result<> done = model.encode(word, found, {}); !done) {
    return done.error().message;
  }
  std::string out;
  for (const TokenId id : found) {
    out += (out.empty() ? "" : " ") + std::to_string(id);
  }
  return out;
}

/// As above for a model given as JSON; the message when it does not load.
inline std::string ids(const std::string& json, std::string_view word) {
  const Result<std::unique_ptr<const Model>> model = read(json);
  return model ? ids(**model, word) : model.error().message;
}

/// A BPE model's text: tokens with ids from 0, merges as `"a b"`, further members.
inline std::string bpe(const std::vector<std::string>& tokens,
                       const std::vector<std::string>& merges = {}, std::string_view more = "") {
  std::string out = R"({"type":"BPE","vocab":{)";
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    json::append_string(out += id == 0 ? "" : ",", tokens[id]);
    out += ":" + std::to_string(id);
  }
  out += R"(},"merges":[)";
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    json::append_string(out += rank == 0 ? "" : ",", merges[rank]);
  }
  return out + "]" + (more.empty() ? "" : ",") + std::string(more) + "}";
}

}  // namespace fairlead::tokenizer::testing
