# The Homebrew formula. For a release, write its version, and the checksum of the source archive:
# `curl -L URL | sha256sum`.
class Campanile < Formula
  desc "Scheduler for WebAssembly tasks"
  homepage "https://github.com/campanile-dev/campanile"
  url "https://github.com/campanile-dev/campanile/archive/refs/tags/v0.1.0.tar.gz"
  sha256 "CHECKSUM"
  license "Apache-2.0"

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "host/cli")
    generate_completions_from_executable(bin/"campanile", "completions")
    system bin/"campanile", "man", "--into", buildpath/"man"
    man1.install Dir[buildpath/"man/*.1"]
    # Homebrew's folders belong to all administrators of a machine. A host refuses such a plugins folder by default.
    (buildpath/"campanile.toml").write <<~TOML
      database = "sqlite:#{var}/campanile/campanile.db"
      plugins = "#{var}/campanile/plugins"
      schedules = "#{var}/campanile/schedules.toml"

      [policy]
      foreign_writers = "warn"
    TOML
    etc.install "campanile.toml"
  end

  def post_install
    (var/"campanile/plugins").mkpath
  end

  service do
    run [opt_bin/"campanile", "serve", "--config", etc/"campanile.toml"]
    keep_alive true
    working_dir var/"campanile"
    log_path var/"log/campanile.log"
    error_log_path var/"log/campanile.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/campanile --version")
    system bin/"campanile", "cron", "next", "@daily"
    system bin/"campanile", "new", "a-task"
    assert_path_exists testpath/"a-task/build"
  end
end
