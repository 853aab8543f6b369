#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/model_id.hpp"
#include "hub/text_files.hpp"

namespace fairlead::hub {
namespace {

using ::testing::ElementsAre;

const std::string kCommit(40, 'a');

TEST(ModelId, NameAndRevisionAreRead) {
  EXPECT_EQ(parse_model_id("org/name"), (ModelId{"org/name", "main"}));
  EXPECT_EQ(parse_model_id("gpt2"), (ModelId{"gpt2", "main"}));
  EXPECT_EQ(parse_model_id("org/n.a-m_e@v1.0"), (ModelId{"org/n.a-m_e", "v1.0"}));
  EXPECT_EQ(parse_model_id("org/name@refs/pr/1"), (ModelId{"org/name", "refs/pr/1"}));
  EXPECT_EQ(parse_model_id("org/name@" + kCommit), (ModelId{"org/name", kCommit}));
  EXPECT_EQ(to_string({"org/name", "main"}), "org/name");
  EXPECT_EQ(to_string({"org/name", "v1"}), "org/name@v1");
  EXPECT_EQ(folder_name({"org/name", "v1"}), "models--org--name");
  EXPECT_EQ(folder_name({"gpt2", "main"}), "models--gpt2");
}

TEST(ModelId, WhatTheHubWouldNotAllowIsNoName) {
  for (const char* text :
       {"",        "/",        "/a",      "a/",     "a/b/c",    "../a",   "a/..",     "./a",
        ".",       "a--b/c",   "a/b..c",  "-a/b",   "a/b-",     "a/.b",   "a b/c",    "a\\b/c",
        "a/b@",    "a/b@../x", "a/b@/x",  "a/b@x/", "a/b@x//y", "a/b@.x", "a/b@x/.y", "a/b@x y",
        "a/b@x~1", "a/b@x^",   "a/b@x:y", "a/b@x?", "a/b@x*",   "a/b@x[", "a/b@x\\y", "a/b@x.lock",
        "a/b@x\n", "a/b.git",  "ä/b",     "a/b@ä"}) {
    EXPECT_EQ(parse_model_id(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_model_id(std::string("a/b\0c", 5)), std::nullopt);
  EXPECT_EQ(parse_model_id(std::string(97, 'a')), std::nullopt);
  EXPECT_EQ(parse_model_id("a/b@" + std::string(201, 'a')), std::nullopt);
}

TEST(ModelId, ACommitIsFortyDigits) {
  EXPECT_TRUE(is_commit(kCommit));
  EXPECT_TRUE(is_commit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit(kCommit.substr(1)));
  EXPECT_FALSE(is_commit(kCommit + "a"));
  EXPECT_FALSE(is_commit(std::string(40, 'A')));
  EXPECT_FALSE(is_commit(std::string(39, 'a') + "/"));
}

TEST(TextFiles, TokenizersTemplatesAndConfigurationAreChosen) {
  for (const char* name : {"tokenizer.json",
                           "tokenizer_config.json",
                           "special_tokens_map.json",
                           "added_tokens.json",
                           "vocab.json",
                           "vocab.txt",
                           "merges.txt",
                           "config.json",
                           "generation_config.json",
                           "chat_template.jinja",
                           "chat_template.json",
                           "chat_template_tools.jinja",
                           "additional_chat_templates/rag.jinja",
                           "tokenizer.model",
                           "tokenizer.model.v3",
                           "sentencepiece.bpe.model",
                           "spiece.model",
                           "qwen.tiktoken",
                           "tiktoken.model",
                           "tekken.json",
                           "preprocessor_config.json",
                           "video_preprocessor_config.json",
                           "processor_config.json"}) {
    EXPECT_TRUE(is_text_file(name)) << name;
  }
}

TEST(TextFiles, WeightsAndOtherThingsAreNot) {
  for (const char* name :
       {"model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin", "model.gguf",
        "consolidated.00.pth", "model.safetensors.index.json", "README.md", "LICENSE",
        "rust_model.ot", ".gitattributes", "onnx/config.json", "original/tokenizer.model",
        "modeling_x.py"}) {
    EXPECT_FALSE(is_text_file(name)) << name;
  }
}

TEST(TextFiles, HostileNamesAreNot) {
  for (const std::string& name :
       {std::string("../tokenizer.json"), std::string("/etc/tokenizer.model"),
        std::string("a/../tokenizer.json"), std::string("..\\tokenizer.model"),
        std::string("C:\\tokenizer.model"), std::string("tokenizer.json\0", 15),
        std::string("x\0.model", 8), std::string("additional_chat_templates/../../x.jinja"),
        std::string("additional_chat_templates/.jinja"),
        std::string("additional_chat_templates/a/b.jinja"), std::string(".model"),
        std::string("-rf.model"), std::string("a b.model"), std::string("\x1b[2J.model"),
        std::string("\u202e.model"), std::string("%2e%2e%2fx.model"),
        std::string(300, 'a') + ".model", std::string()}) {
    EXPECT_FALSE(is_text_file(name)) << name;
  }
}

TEST(TextFiles, ChosenOnesAreSortedAndNotRepeated) {
  EXPECT_THAT(choose_text_files({"tokenizer.json", "model.safetensors", "config.json",
                                 "tokenizer.json", "../config.json"}),
              ElementsAre("config.json", "tokenizer.json"));
}

TEST(TextFiles, TokenizersAreKnown) {
  EXPECT_TRUE(is_tokenizer_file("tokenizer.json"));
  EXPECT_TRUE(is_tokenizer_file("tekken.json"));
  EXPECT_TRUE(is_tokenizer_file("qwen.tiktoken"));
  EXPECT_FALSE(is_tokenizer_file("config.json"));
  EXPECT_FALSE(is_tokenizer_file("tokenizer_config.json"));
}

}  // namespace
}  // namespace fairlead::hub
