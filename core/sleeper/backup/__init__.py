"""Backups of an instance in a folder or a bucket, and instances restored from them.

A *place* holds backups of one instance. A *backup* is a version of each of its tables: its
*manifest* names the objects that hold their states, data files and wheels. Objects never change,
so several backups share them, and a repeated backup copies only those that the place lacks.

    sleeper-backup.json                      makes the folder a place, and names the instance
    backups/<time>-<checksum>.json           manifests
    objects/<path in the instance>           data files and objects beside them
    objects/<table id>/states/...            states, and lists of objects with their checksums
    objects/code/<checksum>/<wheel>          users' wheels
    lock                                     held by the process that writes

Order: the objects of a backup are durable and verified before its manifest exists, and manifests
are deleted before objects that no other one names. So a process may be killed anywhere.
"""
