//! Counts primes: an ordinary program. It reads its context from stdin and prints its output on stdout.

const std = @import("std");

const primes = @import("primes.zig");

/// The exit code for an invalid context. Every code but 0 is a failure.
const bad_context = 65;

/// The keys that the host sets in every context.
const Facts = struct {
    is_recovery: bool = false,
    /// The slot is the same for every run of this launch, however late the run is.
    original_scheduled_time: []const u8 = "",
    attempt: u32 = 1,
};

pub fn main(init: std.process.Init) !u8 {
    const arena = init.arena.allocator();
    var buffer: [4096]u8 = undefined;
    var stdin = std.Io.File.stdin().reader(init.io, &buffer);
    const context = try stdin.interface.allocRemaining(arena, .unlimited);

    // The last line on stderr is recorded as the message.
    const order = primes.Order.of(arena, context) catch |trouble| {
        std.debug.print("the context: {s}: `below` and `rounds` are whole numbers, `report` is a path\n", .{@errorName(trouble)});
        return bad_context;
    };
    const facts = try std.json.parseFromSliceLeaky(Facts, arena, context, .{ .ignore_unknown_fields = true });

    var found: usize = 0;
    for (0..std.math.cast(usize, order.rounds) orelse std.math.maxInt(usize)) |_| {
        found = primes.count(init.gpa, order.below) catch {
            std.debug.print("no memory for a sieve of {d} numbers\n", .{order.below});
            return 1;
        };
    }
    if (order.report) |folder| {
        // The result does not depend on the run, so a repeated run leaves the same result.
        const report = try std.json.Stringify.valueAlloc(arena, .{
            .below = order.below,
            .primes = found,
            .slot = facts.original_scheduled_time,
        }, .{});
        const path = try primes.reportFile(arena, folder, facts.original_scheduled_time);
        writeFile(init, path, report) catch |trouble| {
            std.debug.print("{s} cannot be written: {s}\n", .{ path, @errorName(trouble) });
            return 1;
        };
    }
    const result = try std.json.Stringify.valueAlloc(arena, .{
        .below = order.below,
        .primes = found,
        .is_recovery = facts.is_recovery,
        .slot = facts.original_scheduled_time,
        .attempt = facts.attempt,
    }, .{});
    try std.Io.File.stdout().writeStreamingAll(init.io, result);
    return 0;
}

/// Write a file in the granted directory that contains `path`. Zig uses the first granted directory as the current one.
fn writeFile(init: std.process.Init, path: []const u8, data: []const u8) !void {
    for (init.preopens.map.keys(), 0..) |name, descriptor| {
        const folder = std.mem.trimEnd(u8, name, "/");
        // The first three descriptors are the standard streams.
        if (descriptor < 3 or !std.mem.startsWith(u8, path, folder)) continue;
        if (path.len <= folder.len or path[folder.len] != '/') continue;
        const directory: std.Io.Dir = .{ .handle = @intCast(descriptor) };
        return directory.writeFile(init.io, .{ .sub_path = path[folder.len + 1 ..], .data = data });
    }
    return error.NotGranted;
}
