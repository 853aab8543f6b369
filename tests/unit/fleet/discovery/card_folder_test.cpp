#include "fleet/discovery/card_folder.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "fleet/discovery/folder_testing.hpp"

namespace fairlead::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr milliseconds kGrace(1000);

class CardFolderTest : public ::testing::Test {
 protected:
  explicit CardFolderTest(CardFolderOptions options = {}) : folder(with_path(std::move(options))) {}

  CardFolder::Outcome scan(bool reread = false, const std::set<std::string>& deleted = {}) {
    return folder.scan(now, reread, deleted);
  }
  /// The log of a scan after the time that files have to become whole.
  std::string log_of_late_scan() {
    scan();
    now += kGrace;
    ::testing::internal::CaptureStderr();
    scan();
    return ::testing::internal::GetCapturedStderr();
  }
  std::vector<std::string> seen() const { return summary(folder.cards()); }

  CardFiles files;
  net::TimePoint now{};
  CardFolder folder;

 private:
  CardFolderOptions with_path(CardFolderOptions options) const {
    options.path = files.path;
    options.grace = kGrace;
    return options;
  }
};

TEST_F(CardFolderTest, OneCardPerJsonFileInTheOrderOfNames) {
  files.put("b.json", card_text("m"));
  files.put("a.json", card_text("n", R"("namespace": "x", "instance_id": "i")"));
  files.put("notes.txt", "not a card");
  files.put(".hidden.json", "not a card");
  files.write(".tmp_1", "not a card");
  files.put(".json", "not a card");
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), ElementsAre("x/backend/generate/i=n", "/backend/generate/b=m"));
  const CardFolder::Outcome again = scan();
  EXPECT_FALSE(again.changed || again.again.has_value());
}

TEST_F(CardFolderTest, ReplacingAndRemovingFilesChangesCards) {
  files.put("a.json", card_text("m"));
  files.put("b.json", card_text("m"));
  scan();
  files.put("a.json", card_text("n"));
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=n", "/backend/generate/b=m"));
  files.remove("b.json");
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=n"));
  files.put("a.json", card_text("n"));
  EXPECT_FALSE(scan().changed) << "the same text is no change";
}

TEST_F(CardFolderTest, AMalformedFileKeepsItsLastCardAndIsNamedOnce) {
  files.put("a.json", card_text("m"));
  scan();
  files.put("a.json", R"({"url": 1})");
  const CardFolder::Outcome outcome = scan();
  EXPECT_FALSE(outcome.changed);
  EXPECT_EQ(outcome.again, net::Duration(kGrace)) << "it may still be being written";
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=m"));

  std::string log = log_of_late_scan();
  EXPECT_THAT(log,
              HasSubstr("model card cannot be used; its last valid version stays in force "
                        "file=" +
                        (files.path / "a.json").string() + " reason=\"`url` must be a string\""));
  ::testing::internal::CaptureStderr();
  scan(true);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());

  files.put("a.json", R"({"url": 2})");
  log = log_of_late_scan();
  EXPECT_THAT(log, HasSubstr("`url` must be a string")) << "another text is another mistake";

  files.put("a.json", card_text("n"));
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("valid again"));
  files.put("a.json", "{");
  scan();
  files.remove("a.json");
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), IsEmpty()) << "removing the file withdraws its last card";
}

TEST_F(CardFolderTest, AFileThatIsWrittenInPlaceIsNotComplainedAbout) {
  const std::string text = card_text("m");
  files.write("a.json", text.substr(0, text.size() / 2));
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(scan().again.has_value());
  now += kGrace / 2;
  files.write("a.json", text);
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("cannot be used")));
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=m"));
}

TEST_F(CardFolderTest, WhatIsNoFileIsLeftOutAndDoesNotBlock) {
  ASSERT_EQ(mkfifo((files.path / "pipe.json").c_str(), 0600), 0);
  std::filesystem::create_directory(files.path / "folder.json");
  std::filesystem::create_symlink("nowhere", files.path / "dangling.json");
  const std::string log = log_of_late_scan();
  EXPECT_THAT(log, HasSubstr("folder.json reason=\"is not a regular file\""));
  EXPECT_THAT(log, HasSubstr("pipe.json reason=\"is not a regular file\""));
  EXPECT_THAT(log, Not(HasSubstr("dangling")));
  EXPECT_THAT(seen(), IsEmpty());
}

TEST_F(CardFolderTest, AFileThatBecomesReadableAgainIsBack) {
  files.put("a.json", card_text("m"));
  scan();
  files.remove("a.json");
  ASSERT_EQ(mkfifo((files.path / "a.json").c_str(), 0600), 0);
  EXPECT_THAT(log_of_late_scan(), HasSubstr("its last valid version stays in force"));
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=m"));
  files.put("a.json", card_text("m"));
  ::testing::internal::CaptureStderr();
  scan();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("valid again"));
  EXPECT_THAT(log_of_late_scan(), IsEmpty());
}

TEST_F(CardFolderTest, FilesAboveTheLimitAreRefused) {
  files.put("a.json", card_text("m", "\"x\": \"" + std::string(kMaxCardBytes, 'x') + "\""));
  EXPECT_THAT(log_of_late_scan(), HasSubstr("a card is at most 1048576 bytes long"));
  EXPECT_THAT(seen(), IsEmpty());
}

TEST_F(CardFolderTest, LinksAreFollowedAndTheirTargetsChangesSeen) {
  // As a mounted ConfigMap is updated: the files are links through a link that is replaced.
  const auto dir = [&](const std::string& name) { return files.path / name; };
  std::filesystem::create_directory(dir("..1"));
  std::filesystem::create_directory(dir("..2"));
  files.write("..1/a.json", card_text("m"));
  files.write("..2/a.json", card_text("n"));
  std::filesystem::create_symlink("..1", dir("..data"));
  std::filesystem::create_symlink("..data/a.json", dir("a.json"));
  scan();
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=m"));
  std::filesystem::create_symlink("..2", dir("..data_tmp"));
  std::filesystem::rename(dir("..data_tmp"), dir("..data"));
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=n"));
}

TEST_F(CardFolderTest, OfTheSameKeyTheFirstFileCounts) {
  files.put("b.json", card_text("m", R"("instance_id": "x")"));
  files.put("c.json", card_text("n", R"("instance_id": "x")"));
  ::testing::internal::CaptureStderr();
  scan();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              HasSubstr("another file has the same key file=" + (files.path / "c.json").string() +
                        " other=b.json key=/backend/generate/x"));
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/x=m"));
  ::testing::internal::CaptureStderr();
  scan(true);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty()) << "said once";
  files.put("a.json", card_text("o", R"("instance_id": "x")"));
  scan();
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/x=o"));
  files.remove("a.json");
  files.remove("b.json");
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/x=n"));
}

TEST_F(CardFolderTest, AFolderThatIsNotThereIsWaitedForWithOneWarning) {
  std::filesystem::remove(files.path);
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(scan().changed);
  scan();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("cannot be listed; waiting for it folder=" + files.path.string()));
  EXPECT_EQ(log.find("cannot be listed"), log.rfind("cannot be listed"));
  EXPECT_FALSE(folder.present());
  std::filesystem::create_directory(files.path);
  files.put("a.json", card_text("m"));
  EXPECT_TRUE(scan().changed);
  EXPECT_TRUE(folder.present());
}

TEST_F(CardFolderTest, AFolderThatGoesAwayTakesOnlyFilesThatWereSeenToGo) {
  files.put("a.json", card_text("m"));
  files.put("b.json", card_text("m"));
  scan();
  std::filesystem::remove_all(files.path);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(scan(false, {"b.json", "stranger"}).changed);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("its last cards stay in force"));
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=m"));
  std::filesystem::create_directory(files.path);
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), IsEmpty()) << "a folder that is there says what there is";
}

class FilteredFolderTest : public CardFolderTest {
 protected:
  FilteredFolderTest()
      : CardFolderTest({.path = {}, .filter = NamespaceFilter("a", std::nullopt, false)}) {}
};

TEST_F(FilteredFolderTest, OtherNamespacesAreLeftOutSilently) {
  files.put("1.json", card_text("m", R"("namespace": "b", "instance_id": "x")"));
  files.put("2.json", card_text("m", R"("namespace": "a", "instance_id": "x")"));
  files.put("3.json", card_text("m"));
  EXPECT_THAT(log_of_late_scan(), IsEmpty());
  EXPECT_THAT(seen(), ElementsAre("a/backend/generate/x=m"));
}

class SmallFolderTest : public CardFolderTest {
 protected:
  SmallFolderTest() : CardFolderTest({.path = {}, .filter = {}, .max_files = 2}) {}
};

TEST_F(SmallFolderTest, TooManyFilesAreCutInTheOrderOfNames) {
  files.put("c.json", card_text("m"));
  files.put("b.json", card_text("m"));
  files.put("a.json", card_text("m"));
  ::testing::internal::CaptureStderr();
  scan();
  scan();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("too many model cards: 2 files are read"));
  EXPECT_EQ(log.find("too many"), log.rfind("too many"));
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/a=m", "/backend/generate/b=m"));
  files.remove("a.json");
  scan();
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/b=m", "/backend/generate/c=m"));
}

TEST_F(SmallFolderTest, FurtherFilesTakeNoKnownCardAway) {
  files.put("x.json", card_text("m"));
  files.put("y.json", "{}");
  scan();
  files.put("a.json", "{}");
  files.put("b.json", card_text("m"));
  EXPECT_FALSE(scan().changed);
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/x=m"));
  files.remove("a.json");
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/b=m", "/backend/generate/x=m"));
  files.put("a.json", card_text("m"));
  files.put("x.json", card_text("n"));
  EXPECT_TRUE(scan().changed);
  EXPECT_THAT(seen(), ElementsAre("/backend/generate/b=m", "/backend/generate/x=n"));
}

}  // namespace
}  // namespace fairlead::fleet
