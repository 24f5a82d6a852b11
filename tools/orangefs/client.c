/* What OrangeFS's own programs do not do: lists of pieces, distributions, ends of files, links, long directories. Each
 * step checks what comes back. client MOUNT NAME */
#include <pvfs2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what) do { int got = (what); if (got < 0) { printf("%s: %d\n", #what, got); exit(1); } } while (0)
#define SAME(what) do { if (!(what)) { printf("%s: not so: %s (line %d)\n", doing, #what, __LINE__); exit(1); } } while (0)

/* Which access is tried. */
static char doing[100];
static PVFS_credential credential;
static PVFS_object_ref root;

static PVFS_sys_attr attributes(int servers) {
    PVFS_sys_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.owner = credential.userid;
    attr.group = credential.group_array[0];
    attr.perms = 0644;
    attr.atime = attr.mtime = attr.ctime = time(NULL);
    attr.mask = PVFS_ATTR_SYS_ALL_SETABLE;
    if (servers) {
        attr.dfile_count = servers;
        attr.mask |= PVFS_ATTR_SYS_DFILE_COUNT;
    }
    return attr;
}

static PVFS_object_ref create(char *name, int servers, PVFS_sys_dist *dist, PVFS_sys_layout *layout) {
    PVFS_sysresp_create resp;
    CHECK(PVFS_sys_create(name, root, attributes(servers), &credential, dist, &resp, layout, NULL));
    return resp.ref;
}

static long move(PVFS_object_ref ref, PVFS_Request type, long offset, char *data, long len, enum PVFS_io_type how) {
    PVFS_Request memory;
    PVFS_sysresp_io resp;
    CHECK(PVFS_Request_contiguous(len, PVFS_BYTE, &memory));
    CHECK(PVFS_sys_io(ref, type, offset, data, memory, &credential, &resp, how, NULL));
    PVFS_Request_free(&memory);
    snprintf(doing, sizeof doing, "%ld bytes from %ld %s: %ld", len, offset, how == PVFS_IO_READ ? "read" : "written", (long)resp.total_completed);
    return resp.total_completed;
}

/* The access writes and reads; what a plain read finds is as `where` says. */
static void pieces(char *name, PVFS_Request type, long len, long (*where)(long), int servers, PVFS_sys_dist *dist) {
    PVFS_object_ref ref = create(name, servers, dist, NULL);
    long last = where(len - 1) + 1, i;
    char *data = malloc(len), *back = malloc(last);
    for (i = 0; i < len; i++) data[i] = 1 + (i * 7 + i / 251) % 255;
    SAME(move(ref, type, 0, data, len, PVFS_IO_WRITE) == len);
    memset(back, 9, last);
    SAME(move(ref, PVFS_BYTE, 0, back, last, PVFS_IO_READ) == last);
    for (i = 0; i < len; i++) SAME(back[where(i)] == data[i]);
    memset(back, 9, len);
    SAME(move(ref, type, 0, back, len, PVFS_IO_READ) == len);
    SAME(!memcmp(back, data, len));
    /* Beyond its end there is nothing, and half of what is asked for before it. */
    SAME(move(ref, PVFS_BYTE, last + 100000, back, len < 1000 ? len : 1000, PVFS_IO_READ) == 0);
    SAME(move(ref, PVFS_BYTE, last - 1, back, 10, PVFS_IO_READ) == 1);
    free(data);
    free(back);
    CHECK(PVFS_sys_remove(name, root, &credential, NULL));
}

static long run, gap;
static long strided(long i) { return i / run * gap + i % run; }
static long growing(long i) { long block = 0, at = 0; while (i >= 100 * (block + 1)) { i -= 100 * ++block; at += 70000; } return at + i; }
static long plain(long i) { return i; }

/* OrangeFS moves 64 pieces at most of what fits into a small request. */
static void lists(char *name) {
    PVFS_Request type;
    int cases[][3] = {{16, 1000, 50000}, {16, 40000, 50000}, {60, 1, 200}, {65000, 1, 7}, {500, 4096, 8192}}, i, servers;
    for (servers = 1; servers <= 4; servers += 3)
        for (i = 0; i < 5; i++) {
            run = cases[i][1], gap = cases[i][2];
            CHECK(PVFS_Request_vector(cases[i][0], run, gap, PVFS_BYTE, &type));
            pieces(name, type, (long)cases[i][0] * run, strided, servers, NULL);
            PVFS_Request_free(&type);
        }
    int32_t lengths[60];
    PVFS_size at[60];
    for (i = 0; i < 60; i++) lengths[i] = 100 * (i + 1), at[i] = 70000l * i;
    CHECK(PVFS_Request_hindexed(60, lengths, at, PVFS_BYTE, &type));
    pieces(name, type, 100l * 60 * 61 / 2, growing, 4, NULL);
    PVFS_Request_free(&type);
}

static void distributions(char *name) {
    PVFS_sys_dist *dist;
    int64_t strip = 4096;
    CHECK((dist = PVFS_sys_dist_lookup("simple_stripe")) ? 0 : -1);
    CHECK(PVFS_sys_dist_setparam(dist, "strip_size", &strip));
    pieces(name, PVFS_BYTE, 3000000, plain, 4, dist);
    PVFS_sys_dist_free(dist);
    CHECK((dist = PVFS_sys_dist_lookup("basic_dist")) ? 0 : -1);
    pieces(name, PVFS_BYTE, 3000000, plain, 1, dist);
    PVFS_sys_dist_free(dist);
    if ((dist = PVFS_sys_dist_lookup("varstrip_dist"))) {
        CHECK(PVFS_sys_dist_setparam(dist, "strips", "0:64K;1:5000;2:1M;3:100"));
        pieces(name, PVFS_BYTE, 5000000, plain, 4, dist);
        PVFS_sys_dist_free(dist);
    }
    if ((dist = PVFS_sys_dist_lookup("twod_stripe"))) {
        int groups = 2, factor = 3;
        CHECK(PVFS_sys_dist_setparam(dist, "num_groups", &groups));
        CHECK(PVFS_sys_dist_setparam(dist, "group_strip_factor", &factor));
        pieces(name, PVFS_BYTE, 5000000, plain, 4, dist);
        PVFS_sys_dist_free(dist);
    }
    PVFS_sys_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.algorithm = PVFS_SYS_LAYOUT_RANDOM;
    char data[] = "anywhere", back[9] = "";
    PVFS_object_ref ref = create(name, 2, NULL, &layout);
    SAME(move(ref, PVFS_BYTE, 100000, data, 9, PVFS_IO_WRITE) == 9);
    SAME(move(ref, PVFS_BYTE, 100000, back, 9, PVFS_IO_READ) == 9 && !strcmp(data, back));
    CHECK(PVFS_sys_remove(name, root, &credential, NULL));
}

/* Clients remember attributes for seconds: a read tells where the file ends. */
static long size_of(PVFS_object_ref ref) {
    static char back[1 << 20];
    return move(ref, PVFS_BYTE, 0, back, sizeof back, PVFS_IO_READ);
}

static void sizes(char *name) {
    PVFS_object_ref ref = create(name, 4, NULL, NULL);
    char data[1000], back[1000];
    long end = 0, i;
    memset(data, 5, 1000);
    for (i = 0; i < 20; i++, end += 977) SAME(move(ref, PVFS_BYTE, size_of(ref), data, 977, PVFS_IO_WRITE) == 977);
    SAME(size_of(ref) == end);
    CHECK(PVFS_sys_truncate(ref, 300000, &credential, NULL));
    SAME(size_of(ref) == 300000);
    SAME(move(ref, PVFS_BYTE, 299000, back, 1000, PVFS_IO_READ) == 1000 && back[0] == 0);
    CHECK(PVFS_sys_truncate(ref, 10, &credential, NULL));
    SAME(size_of(ref) == 10 && move(ref, PVFS_BYTE, 0, back, 1000, PVFS_IO_READ) == 10);
    CHECK(PVFS_sys_flush(ref, &credential, NULL));
    PVFS_sysresp_symlink link;
    char other[300];
    snprintf(other, sizeof other, "%s-link", name);
    CHECK(PVFS_sys_symlink(other, root, name, attributes(0), &credential, &link, NULL));
    CHECK(PVFS_sys_remove(other, root, &credential, NULL));
    snprintf(other, sizeof other, "%s-moved", name);
    CHECK(PVFS_sys_rename(name, root, other, root, &credential, NULL));
    CHECK(PVFS_sys_remove(other, root, &credential, NULL));
    PVFS_sysresp_statfs stat;
    CHECK(PVFS_sys_statfs(root.fs_id, &credential, &stat, NULL));
    SAME(stat.server_count > 0);
}

/* More entries than one answer holds; pvfs2-ls lists them. */
static void directory(char *name, int entries) {
    PVFS_sysresp_mkdir made;
    PVFS_sys_attr attr = attributes(0);
    attr.perms = 0755;
    CHECK(PVFS_sys_mkdir(name, root, attr, &credential, &made, NULL));
    root = made.ref;
    char entry[300];
    int i;
    for (i = 0; i < entries; i++) {
        snprintf(entry, sizeof entry, "%0200d", i);
        create(entry, 4, NULL, NULL);
    }
}

int main(int count, char **words) {
    PVFS_fs_id fs;
    char path[PVFS_NAME_MAX];
    PVFS_sysresp_lookup found;
    if (count < 3) return 2;
    CHECK(PVFS_util_init_defaults());
    CHECK(PVFS_util_resolve(words[1], &fs, path, sizeof path));
    CHECK(PVFS_util_gen_credential_defaults(&credential));
    CHECK(PVFS_sys_lookup(fs, "/", &credential, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL));
    root = found.ref;
    char *name = words[2];
    lists(name);
    distributions(name);
    sizes(name);
    directory(name, 150);
    puts("all as it was written");
    PVFS_sys_finalize();
    return 0;
}
