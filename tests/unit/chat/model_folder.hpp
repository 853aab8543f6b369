#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace fairlead::chat {

/// A folder of files that is removed at the end.
class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "fairlead-model-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  /// Writes a file, with the folders above it.
  ModelFolder& write(std::string_view name, std::string_view text) {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return *this;
  }
  /// Writes a tokenizer of the bytes and two special tokens.
  ModelFolder& write_tokenizer(std::string_view name = "tokenizer.json") {
    return write(name, R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[
      {"id":0,"content":"<end>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
      {"id":1,"content":"<turn>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
      "normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
      "post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
      "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
      "fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"<end>":0,"<turn>":1,"a":2,"b":3},"merges":[]}})");
  }
  /// Where it is.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fairlead::chat
