#include <array>

#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/tables.hpp"

int main(int argc, char** argv) {
  namespace cli = fairlead::cli;
  const auto commands = std::to_array<cli::Command>({
      {"serve", "Answer the OpenAI API with the engines of a fleet", "", cli::serve_table(),
       cli::run_serve},
      {"demo", "A frontend with two simulated engines, to try it out", "", cli::demo_table(),
       cli::run_demo},
      {"mock-engine", "Play an inference engine, for tests and benchmarks", "",
       cli::mock_engine_table(), cli::run_mock_engine},
      {"probe", "Print what an engine reports", "URL", cli::probe_table(), cli::run_probe},
      {"tokenize", "Text to token ids and back, one JSON line each", "", cli::tokenize_table(),
       cli::run_tokenize},
      {"render", "Conversations to prompts, one JSON line each", "", cli::render_table(),
       cli::run_render},
      {"config", "Check serve's options, or print their documentation", "check|docs",
       cli::serve_table(), cli::run_config},
      {"version", "Print the version", "", {}, cli::run_version},
  });
  return cli::run_program(commands, argc, argv);
}
