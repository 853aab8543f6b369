#include "fleet/discovery/file_source.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/discovery/folder_testing.hpp"

namespace fairlead::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FileSourceTest : public ::testing::Test {
 public:
  ~FileSourceTest() override { stop(); }

 protected:
  void start(FileSourceOptions options = {}) {
    options.folder.path = files.path;
    options.absent_interval = milliseconds(10);
    reactor.post([this, options] {
      source = std::make_unique<FileCardSource>(options);
      source->start([this](const std::vector<Card>& cards) {
        ++reports;
        seen = summary(cards);
      });
      EXPECT_EQ(reports, 0) << "never inside start";
    });
  }
  void stop() {
    reactor.post([this] { source.reset(); });
    reactor.run_turn(milliseconds(0));
  }
  /// Runs the reactor until these cards are reported.
  bool wait(const std::vector<std::string>& wanted) {
    const net::TimePoint deadline = net::Clock::now() + seconds(20);
    while (seen != wanted && net::Clock::now() < deadline) {
      reactor.run_turn(milliseconds(50));
    }
    EXPECT_EQ(seen, std::optional(wanted));
    return seen == wanted;
  }

  CardFiles files;
  net::Reactor reactor;
  std::unique_ptr<FileCardSource> source;
  std::optional<std::vector<std::string>> seen;
  int reports = 0;
};

const std::string kA = "/backend/generate/a=";
const std::string kB = "/backend/generate/b=";

TEST_F(FileSourceTest, ReportsJoinReplacementAndWithdrawal) {
  start();
  ASSERT_TRUE(wait({})) << "the first report comes even without cards";
  files.put("a.json", card_text("m"));
  ASSERT_TRUE(wait({kA + "m"}));
  files.put("b.json", card_text("m"));
  ASSERT_TRUE(wait({kA + "m", kB + "m"}));
  files.put("a.json", card_text("n"));
  ASSERT_TRUE(wait({kA + "n", kB + "m"}));
  files.write("b.json", card_text("longer"));
  ASSERT_TRUE(wait({kA + "n", kB + "longer"}));
  files.remove("a.json");
  ASSERT_TRUE(wait({kB + "longer"}));
}

TEST_F(FileSourceTest, HardLinksAndLinksAreSeen) {
  start();
  ASSERT_TRUE(wait({}));
  files.write(".tmp_1", card_text("m"));
  std::filesystem::create_hard_link(files.path / ".tmp_1", files.path / "a.json");
  ASSERT_TRUE(wait({kA + "m"}));
  std::filesystem::create_symlink(".tmp_1", files.path / "b.json");
  ASSERT_TRUE(wait({kA + "m", kB + "m"}));
}

TEST_F(FileSourceTest, ABurstIsFewReports) {
  start();
  ASSERT_TRUE(wait({}));
  const net::TimePoint begun = net::Clock::now();
  for (int i = 0; i < 200; ++i) {
    files.put("a.json", card_text(std::to_string(i)));
  }
  ASSERT_TRUE(wait({kA + "199"}));
  // Each waits until nothing has changed for 10 ms, however long the writes take on a busy machine.
  EXPECT_LE(reports, (net::Clock::now() - begun) / milliseconds(10) + 2);
}

TEST_F(FileSourceTest, AnAbsentFolderIsWaitedFor) {
  std::filesystem::remove(files.path);
  start();
  ASSERT_TRUE(wait({}));
  std::filesystem::create_directory(files.path);
  files.put("a.json", card_text("m"));
  ASSERT_TRUE(wait({kA + "m"}));
}

TEST_F(FileSourceTest, AFolderThatIsDeletedWithItsFilesWithdrawsThem) {
  files.put("a.json", card_text("m"));
  files.put("b.json", card_text("m"));
  start();
  ASSERT_TRUE(wait({kA + "m", kB + "m"}));
  std::filesystem::remove_all(files.path);
  ASSERT_TRUE(wait({}));
  std::filesystem::create_directory(files.path);
  files.put("b.json", card_text("n"));
  ASSERT_TRUE(wait({kB + "n"}));
}

TEST_F(FileSourceTest, AFolderThatIsExchangedIsWatchedOn) {
  files.put("a.json", card_text("m"));
  start();
  ASSERT_TRUE(wait({kA + "m"}));
  std::filesystem::rename(files.path, files.path.string() + ".old");
  std::filesystem::create_directory(files.path);
  files.put("b.json", card_text("m"));
  ASSERT_TRUE(wait({kB + "m"}));
  files.put("a.json", card_text("n"));
  ASSERT_TRUE(wait({kA + "n", kB + "m"}));
}

TEST_F(FileSourceTest, TheRelistingFindsWhatNoEventTold) {
  // The folder is a link: what happens to the link itself is not reported.
  const std::filesystem::path other = files.path.parent_path() / "other";
  std::filesystem::create_directory(other);
  std::ofstream(other / "b.json") << card_text("n");
  const std::filesystem::path link = files.path.parent_path() / "link";
  std::filesystem::create_directory_symlink(files.path, link);
  files.put("a.json", card_text("m"));
  files.path = link;
  FileSourceOptions options;
  options.relist_interval = milliseconds(50);
  start(options);
  ASSERT_TRUE(wait({kA + "m"}));
  std::filesystem::create_directory_symlink(other, link.string() + "2");
  std::filesystem::rename(link.string() + "2", link);
  ASSERT_TRUE(wait({kB + "n"}));
}

TEST_F(FileSourceTest, NothingIsReportedAfterTheEnd) {
  start();
  ASSERT_TRUE(wait({}));
  files.put("a.json", card_text("m"));
  stop();
  const int before = reports;
  for (int i = 0; i < 5; ++i) {
    reactor.run_turn(milliseconds(1));
  }
  EXPECT_EQ(reports, before);
}

}  // namespace
}  // namespace fairlead::fleet
