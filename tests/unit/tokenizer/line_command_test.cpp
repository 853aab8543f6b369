#include "tokenizer/line_command.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

class TokenizeLines : public ::testing::Test {
 protected:
  TokenizeLines() {
    small.added_tokens = "[" + testing::added_token("<s>", "special") + "]";
    small.post_processor = R"({"type":"BertProcessing","cls":["<s>",256],"sep":["b",98]})";
    write(small.json());
  }
  void write(const std::string& json) const { std::ofstream(path_) << json; }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string run(const std::string& input, bool decode = false) const {
    std::istringstream in(input);
    std::ostringstream out;
    EXPECT_EQ(run_tokenize(in, out, {path_, decode}), 0);
    return out.str();
  }

  testing::SmallModel small;
  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      ("fairlead_line_command_test_" + std::to_string(::getpid()) + ".json");
};

TEST_F(TokenizeLines, EncodesEachLine) {
  EXPECT_EQ(run("{\"text\":\"a\"}\n{\"text\":\"a\",\"add_special_tokens\":false}"),
            "{\"ids\":[256,97,98]}\n{\"ids\":[97]}\n");
}

TEST_F(TokenizeLines, TruncatesAndPadsAsTheFileSays) {
  std::string json = small.json();
  json.insert(1,
              R"("truncation":{"max_length":4,"strategy":"LongestFirst","stride":0},)"
              R"("padding":{"strategy":{"Fixed":6},"direction":"Left","pad_to_multiple_of":null,)"
              R"("pad_id":0,"pad_type_id":0,"pad_token":"x"},)");
  write(json);
  EXPECT_EQ(run("{\"text\":\"abcde\"}\n{\"text\":\"abcde\",\"add_special_tokens\":false}"),
            "{\"ids\":[0,0,256,97,98,98]}\n{\"ids\":[0,0,97,98,99,100]}\n");
  EXPECT_EQ(testing::encode(*testing::make(json), "abcde", true),
            (std::vector<TokenId>{256, 97, 98, 99, 100, 101, 98}));  // what engines are sent
}

TEST_F(TokenizeLines, DecodesWithDeltas) {
  EXPECT_EQ(run(R"({"ids":[228,184,173,256,228]})", true),
            "{\"text\":\"中<s>\uFFFD\",\"deltas\":[\"\",\"\",\"中\",\"<s>\",\"\",\"\uFFFD\"]}\n");
  EXPECT_EQ(run(R"({"ids":[173,256],"prompt_ids":[228,184],"skip_special_tokens":true})", true),
            "{\"text\":\"\uFFFD\",\"deltas\":[\"中\",\"\",\"\"]}\n");
}

TEST_F(TokenizeLines, ABadLineGetsAnErrorAndTheNextIsServed) {
  const std::string out =
      run("nonsense\n\n{\"text\":\"\\ud800\"}\n{\"text\":3}\n{\"text\":\"a\"}\n");
  std::istringstream lines(out);
  std::string line;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_TRUE(line.starts_with("{\"error\":\"")) << line;
  }
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "{\"ids\":[256,97,98]}");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(TokenizeLines, AMissingModelIsOneLineAndExitCodeOne) {
  std::istringstream in("{\"text\":\"a\"}\n");
  std::ostringstream out;
  EXPECT_EQ(run_tokenize(in, out, {"/nonexistent/model", false}), 1);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace fairlead::tokenizer
