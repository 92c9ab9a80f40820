//! Counts primes: an ordinary program. Its context comes on stdin, and its one line on stdout is the output.

const std = @import("std");

const primes = @import("primes.zig");

/// The exit code for a context that is not what this task takes. Every code but 0 is a failure.
const bad_context = 65;

/// What the host puts into every context.
const Facts = struct {
    is_recovery: bool = false,
    /// The same for every run of this launch, however late it is.
    original_scheduled_time: []const u8 = "",
    attempt: u32 = 1,
};

pub fn main(init: std.process.Init) !u8 {
    const arena = init.arena.allocator();
    var buffer: [4096]u8 = undefined;
    var stdin = std.Io.File.stdin().reader(init.io, &buffer);
    const context = try stdin.interface.allocRemaining(arena, .unlimited);

    // The last line on stderr goes on the record as the reason.
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
        // What stays in the world says nothing of the run that made it: a second run leaves the same.
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

/// Zig takes the first granted directory for the current one, so the one that `path` lies in is looked for here.
fn writeFile(init: std.process.Init, path: []const u8, data: []const u8) !void {
    for (init.preopens.map.keys(), 0..) |name, descriptor| {
        const folder = std.mem.trimEnd(u8, name, "/");
        // The first three are the standard streams.
        if (descriptor < 3 or !std.mem.startsWith(u8, path, folder)) continue;
        if (path.len <= folder.len or path[folder.len] != '/') continue;
        const directory: std.Io.Dir = .{ .handle = @intCast(descriptor) };
        return directory.writeFile(init.io, .{ .sub_path = path[folder.len + 1 ..], .data = data });
    }
    return error.NotGranted;
}
