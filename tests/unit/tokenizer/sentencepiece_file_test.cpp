#include "tokenizer/sentencepiece_file.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "sentencepiece_testing.hpp"

namespace fairlead::tokenizer {
namespace {

using testing::bytes_field;
using testing::number_field;
using testing::SmallPieces;
using testing::varint;

std::string message_of(const std::string& bytes) {
  const auto file = read_sentencepiece_file(bytes);
  return file ? "" : file.error().message;
}

TEST(SentencePieceFile, HasTheDefaultsOfTheFormat) {
  SmallPieces pieces;
  const std::string bytes = pieces.add("?", 0, PieceKind::Unknown).add("a", -1.5).pieces;
  const auto file = read_sentencepiece_file(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->kind, SentencePieceKind::Unigram);
  EXPECT_FALSE(file->byte_fallback);
  EXPECT_EQ(file->bos_piece, "<s>");
  EXPECT_EQ(file->eos_piece, "</s>");
  EXPECT_EQ(file->unk_surface, " \u2047 ");
  EXPECT_TRUE(file->normalizer.add_dummy_prefix);
  EXPECT_TRUE(file->normalizer.remove_extra_whitespaces);
  EXPECT_TRUE(file->normalizer.escape_whitespaces);
  EXPECT_FALSE(file->normalizer.whitespace_as_suffix);
  EXPECT_FALSE(file->denormalizer);
  ASSERT_EQ(file->pieces.size(), 2U);
  EXPECT_EQ(file->pieces[0].kind, PieceKind::Unknown);
  EXPECT_EQ(file->pieces[1].kind, PieceKind::Normal);
  EXPECT_EQ(file->pieces[1].text, "a");
  EXPECT_EQ(file->pieces[1].score, -1.5F);
}

TEST(SentencePieceFile, ReadsItsOptionsAndSkipsTheRest) {
  SmallPieces pieces(SentencePieceKind::Char);
  pieces.trainer = number_field(24, 1) + bytes_field(44, "") + bytes_field(46, "<b>") +
                   bytes_field(47, "<e>") + bytes_field(1, "corpus.txt") + number_field(4, 8000) +
                   varint(200 << 3 | 1) + std::string(8, 'x') + bytes_field(35, "no flag");
  pieces.normalizer = bytes_field(2, "map") + number_field(3, 0) + number_field(4, 0) +
                      number_field(5, 0) + number_field(3, 1);
  pieces.denormalizer = bytes_field(2, "back");
  const std::string bytes = bytes_field(4, "self test") + pieces.bytes() + number_field(9, 9);
  const auto file = read_sentencepiece_file(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->kind, SentencePieceKind::Char);
  EXPECT_FALSE(file->byte_fallback);
  EXPECT_EQ(file->unk_surface, "");
  EXPECT_EQ(file->bos_piece, "<b>");
  EXPECT_EQ(file->eos_piece, "<e>");
  EXPECT_EQ(file->normalizer.charsmap, "map");
  EXPECT_TRUE(file->normalizer.add_dummy_prefix) << "the last one counts";
  EXPECT_FALSE(file->normalizer.remove_extra_whitespaces);
  EXPECT_FALSE(file->normalizer.escape_whitespaces);
  EXPECT_TRUE(file->normalizer.whitespace_as_suffix);
  ASSERT_TRUE(file->denormalizer);
  EXPECT_EQ(file->denormalizer->charsmap, "back");
  EXPECT_EQ(file->pieces.size(), 3U);
}

TEST(SentencePieceFile, MalformedProtobufIsAnError) {
  EXPECT_NE(message_of("no model").find("not a protobuf"), std::string::npos);
  EXPECT_NE(message_of(varint(1 << 3 | 3)).find("not a protobuf"), std::string::npos) << "a group";
  EXPECT_NE(message_of(std::string(11, '\xFF')).find("not a protobuf"), std::string::npos);
  EXPECT_NE(message_of("").find("no unknown piece"), std::string::npos);
  const std::string whole = SmallPieces(SentencePieceKind::Bpe).add("ab", -1).bytes();
  ASSERT_EQ(message_of(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    message_of(whole.substr(0, size));  // whatever it says
    for (const char value : {'\x00', '\x7F', '\xFF'}) {
      std::string broken = whole;
      broken[size] = value;
      message_of(broken);
    }
  }
}

TEST(SentencePieceFile, RefusesVocabulariesThatMeanNothing) {
  const auto with = [](std::string_view text, float score, PieceKind kind) {
    return message_of(SmallPieces(SentencePieceKind::Bpe).add(text, score, kind).bytes());
  };
  EXPECT_NE(with("", 0, PieceKind::Normal).find("piece 3 is empty"), std::string::npos);
  EXPECT_NE(with("<s>", 0, PieceKind::Normal).find("occurs twice"), std::string::npos);
  EXPECT_NE(with("?", 0, PieceKind::Unknown).find("second unknown"), std::string::npos);
  EXPECT_NE(with("<0x41>", 0, PieceKind::Byte).find("no byte_fallback"), std::string::npos);
  EXPECT_NE(with("\xC3", 0, PieceKind::Normal).find("not UTF-8"), std::string::npos);
  EXPECT_NE(with({"a\0", 2}, 0, PieceKind::Normal).find("null"), std::string::npos);
  EXPECT_NE(with(std::string(8000, 'a'), 0, PieceKind::Normal).find("longer"), std::string::npos);
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_NE(with("a", infinite, PieceKind::Normal).find("finite"), std::string::npos);
  EXPECT_EQ(with({"\0", 1}, 0, PieceKind::Unused), "");

  SmallPieces none(SentencePieceKind::Bpe);
  none.trainer = number_field(35, 1);
  EXPECT_NE(message_of(none.bytes()).find("0 byte pieces"), std::string::npos);
  SmallPieces bytes(SentencePieceKind::Bpe);
  bytes.add_bytes().add({"\0", 1}, 0);
  EXPECT_EQ(message_of(bytes.bytes()), "") << "goes with converters' files";
}

}  // namespace
}  // namespace fairlead::tokenizer
